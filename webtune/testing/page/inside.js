// Runs Python functions for tests, in this page or in a module worker of it.

// Loads Pyodide and wheels into this thread. `call` runs a function of a text there.
export async function startHere({ runtime, wheels }) {
  const began = performance.now();
  const { loadPyodide } = await import(runtime + "pyodide.mjs");
  const python = await loadPyodide({ indexURL: runtime });
  const loaded = performance.now();
  for (const wheel of wheels) {
    // loadPackage itself goes on without what it could not load.
    const failed = [], errorCallback = message => failed.push(message);
    await python.loadPackage(wheel, { messageCallback: () => {}, errorCallback });
    if (failed.length) throw new Error(`${wheel} did not load: ${failed.join("; ")}`);
  }
  python.runPython(await (await fetch(new URL("./harness.py", import.meta.url))).text());
  const call = python.globals.get("call"), block = python.globals.get("call_blocking");
  const times = { pyodide: loaded - began, packages: performance.now() - loaded };
  return { python, times, call: (source, name, args, blocking) =>
    blocking ? block.callPromising(source, name, args) : call(source, name, args) };
}

// Loads Pyodide and wheels here or into a worker, and gives how long that took.
export async function start(options, inWorker) {
  if (!inWorker) {
    window.inside_python = await startHere(options);
    return window.inside_python.times;
  }
  const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  const waiting = new Map();
  let last = 0;
  worker.onmessage = ({ data }) => {
    const { done, failed } = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.error) failed(new Error(data.error)); else done(data.value);
  };
  worker.onerror = event => {
    for (const { failed } of waiting.values()) failed(new Error(event.message));
  };
  const ask = message => new Promise((done, failed) => {
    waiting.set(++last, { done, failed });
    worker.postMessage({ id: last, ...message });
  });
  window.inside_python = { worker, call: (source, name, args, blocking) =>
    ask({ source, name, args, blocking }) };
  return ask({ options });
}

// Runs a function of a text where Python was started; fails after `timeout` ms.
export const call = ([source, name, args, timeout, blocking]) => Promise.race([
  window.inside_python.call(source, name, args, blocking),
  new Promise((_, late) =>
    setTimeout(() => late(new Error(`${name} did not end in ${timeout} ms`)), timeout)),
]);

// What this page lacks to compute, or "".
export async function missing() {
  if (!navigator.gpu) return "no navigator.gpu";
  return await navigator.gpu.requestAdapter() ? "" : "no adapter";
}
