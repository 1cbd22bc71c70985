// Loads Pyodide and webtune in a worker, and carries messages to and from lab.py. Nothing else.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const say = text => self.postMessage(JSON.parse(text));
const tell = text => self.postMessage({ kind: "loading", text });

async function open() {
  const began = performance.now();
  const site = await (await fetch("site.json")).json();
  const python = await loadPyodide({ indexURL: new URL("pyodide/", self.location.href).href });
  const loaded = performance.now();
  tell("Loading webtune…");
  const wheels = site.wheels.map(name => new URL(name, self.location.href).href);
  await python.loadPackage(wheels, { messageCallback: () => 0 });
  python.FS.writeFile("lab.py", await (await fetch("lab.py")).text());
  const module = python.pyimport("lab");
  const packages = performance.now();
  return module.start(say, JSON.stringify([loaded - began, packages - loaded]));
}

const opening = open().catch(error => {
  self.postMessage({ kind: "trouble", text: String(error.message || error) });
  throw error;
});
self.onmessage = async ({ data }) => (await opening)?.[data.call](...data.args);
