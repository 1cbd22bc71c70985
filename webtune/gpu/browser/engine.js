// Encodes, submits and maps for Python, next to the page's GPUDevice. It decides nothing.
//
// A whole dispatch through Python's proxies costs several times one call to a function written here
// (measured: 34 µs against 13 µs), and numbers and strings cross without leaving a proxy behind. So
// programs, pipelines and mapped ranges live on this side under numbers. No promise given to Python
// rejects: each becomes a number, or a text "launch:…", "timeout:…" or "lost:…".
//
// The file is one expression: a function from a GPUDevice, the size of its query set (0: none) and
// the time-out of its work to the engine.
(device, queryCount, timeoutMs) => {
  const queue = device.queue;
  const texts = [], modules = new Map(), layouts = new Map(), pipelines = new Map();
  const programs = new Map(), tickets = new Map(), passes = [], pending = new Set();
  const destroyed = new WeakSet();
  let lastNumber = 0, lost = "", hides = 0, saidHidden = false, closed = false;
  const unseen = [];

  const lose = reason => {
    if (lost) return;
    lost = reason;
    for (const refuse of pending) refuse("lost:" + reason);
    for (const go of unseen.splice(0)) go(0);
  };
  device.lost.then(info => {
    const reason = String((info && info.reason) || "unknown");
    lose(`${reason}: ${String((info && info.message) || "")}`.trim());
  });

  const inPage = typeof document !== "undefined";
  const hidden = () => saidHidden || (inPage && document.visibilityState === "hidden");
  const seen = () => {
    if (hidden()) hides += 1;
    else for (const go of unseen.splice(0)) go(0);
  };
  if (inPage) document.addEventListener("visibilitychange", seen);

  // The first of: the work, the loss of the device, the time-out. A page that was hidden meanwhile
  // may have been frozen: its timer says nothing, so it is set again.
  const bounded = (work, most = timeoutMs) => new Promise(done => {
    if (lost) return done("lost:" + lost);
    let timer = 0, at = hides;
    const finish = value => {
      clearTimeout(timer);
      pending.delete(finish);
      done(typeof value === "number" && lost ? "lost:" + lost : value);
    };
    const watch = () => {
      if (hidden() || at !== hides) { at = hides; timer = setTimeout(watch, most); }
      else finish("timeout:" + most);
    };
    timer = setTimeout(watch, most);
    pending.add(finish);
    work.then(finish, error => finish("launch:" + String((error && error.message) || error)));
  });

  // Runs `work`; the promise of what was refused in it. The scope is popped whatever happens.
  const scoped = work => {
    device.pushErrorScope("validation");
    let scope;
    try {
      work();
    } finally {
      scope = device.popErrorScope();
    }
    return scope;
  };
  const submitted = fill => {
    const encoder = device.createCommandEncoder();
    fill(encoder);
    queue.submit([encoder.finish()]);
    return "";
  };
  // The device tells of a destroyed buffer too late, and drops the whole submit.
  const destroyedIn = (buffers, step) => {
    for (let i = 0; i < buffers.length; i++)
      if (i % 3 !== step && destroyed.has(buffers[i])) return "launch:a buffer of it was destroyed";
    return "";
  };
  const copyInto = (encoder, copies) => {
    for (let i = 0; i + 2 < copies.length; i += 3)
      encoder.copyBufferToBuffer(copies[i], 0, copies[i + 1], 0, copies[i + 2]);
  };
  const encodeInto = (pass, steps, repeat) => {
    const only = steps.length === 1;
    for (let n = 0; n < repeat; n++) for (const step of steps) {
      if (n === 0 || !only) {
        pass.setPipeline(step.pipeline);
        pass.setBindGroup(0, step.group);
      }
      pass.dispatchWorkgroups(step.x, step.y, step.z);
    }
  };
  const encodePass = (encoder, steps) => {
    const pass = encoder.beginComputePass();
    encodeInto(pass, steps, 1);
    pass.end();
  };
  // Encoded and thrown away: what a dispatch is refused for shows now, not in a sample.
  const rehearse = steps => {
    const encoder = device.createCommandEncoder();
    encodePass(encoder, steps);
    encoder.finish();
  };
  const timed = slot => passes[slot] || (passes[slot] = { timestampWrites: {
    querySet, beginningOfPassWriteIndex: 2 * slot, endOfPassWriteIndex: 2 * slot + 1 } });

  const querySet = queryCount
    ? device.createQuerySet({ type: "timestamp", count: queryCount }) : null;
  const resolved = queryCount
    ? device.createBuffer({ size: 8 * queryCount, usage: 0x0200 | 0x0004 }) : null;
  const probe = device.createBuffer({ size: 4, usage: 0x0004 });

  const moduleOf = number => {
    let found = modules.get(number);
    if (!found) {
      let module;
      const scope = scoped(() => { module = device.createShaderModule({ code: texts[number] }); });
      found = (async () => {
        const [error, info] = await Promise.all([scope, module.getCompilationInfo()]);
        const messages = info.messages.filter(m => m.type === "error").map(m =>
          m.lineNum ? `line ${m.lineNum}: ${m.message} (column ${m.linePos})` : m.message);
        return { module, error: messages.join("; ") || (error ? error.message : "") };
      })();
      found.now = module;
      modules.set(number, found);
    }
    return found;
  };
  const layoutOf = bindings => {
    const key = JSON.stringify(bindings);
    let found = layouts.get(key);
    if (!found) {
      const entries = bindings.map(([binding, type]) =>
        ({ binding, visibility: 4, buffer: { type } }));
      const group = device.createBindGroupLayout({ entries });
      found = { group, whole: device.createPipelineLayout({ bindGroupLayouts: [group] }) };
      layouts.set(key, found);
    }
    return found;
  };
  const keyOf = spec => JSON.stringify([spec.text, spec.entry, spec.constants, spec.bindings]);
  const describe = (spec, module) => ({ layout: layoutOf(spec.bindings).whole, compute: {
    module, entryPoint: spec.entry, constants: Object.fromEntries(spec.constants) } });
  // `made` is there at once or later: {pipeline} or {error}.
  const pipelineOf = spec => {
    const key = keyOf(spec);
    let slot = pipelines.get(key);
    if (slot) return slot;
    slot = { made: null };
    slot.ready = (async () => {
      const { module, error } = await moduleOf(spec.text);
      if (error) return { error };
      let making;
      const scope = scoped(() => {
        making = device.createComputePipelineAsync(describe(spec, module));
      });
      const failed = await making.then(pipeline => { slot.pipeline = pipeline; }, refusal => refusal);
      const bad = await scope;
      if (!failed && !bad) return { pipeline: slot.pipeline };
      return { error: String((bad && bad.message) || (failed && failed.message) || failed) };
    })().then(made => {
      if (made.error && lost) pipelines.delete(key);
      return slot.made = made;
    });
    pipelines.set(key, slot);
    return slot;
  };
  const pipelineNow = spec => {
    const slot = pipelines.get(keyOf(spec));
    if (slot && slot.made) return slot.made;
    const held = modules.get(spec.text);
    const module = (held && held.now) || device.createShaderModule({ code: texts[spec.text] });
    return { pipeline: device.createComputePipeline(describe(spec, module)) };
  };
  const bindInto = (specs, made, buffers) => {
    let at = 0;
    return specs.map((spec, i) => {
      const entries = spec.bindings.map(([binding], j) => ({ binding,
        resource: { buffer: buffers[at + j], offset: 0, size: spec.sizes[j] } }));
      at += entries.length;
      const group = device.createBindGroup({ layout: layoutOf(spec.bindings).group, entries });
      const [x, y, z] = spec.workgroups;
      return { pipeline: made[i].pipeline, group, x, y, z };
    });
  };
  const assemble = async (specs, buffers) => {
    const made = await Promise.all(specs.map(spec => pipelineOf(spec).ready));
    const bad = made.find(found => found.error);
    if (bad) return "launch:" + bad.error;
    let steps;
    const error = await scoped(() => {
      steps = bindInto(specs, made, buffers);
      rehearse(steps);
    });
    if (error) return "launch:" + error.message;
    programs.set(++lastNumber, { steps, buffers, failure: "" });
    return lastNumber;
  };
  const assembleNow = (specs, buffers) => {
    const program = { steps: [], buffers, failure: "" };
    let bad;
    scoped(() => {
      const made = specs.map(pipelineNow);
      bad = made.find(found => found.error);
      if (bad) return;
      program.steps = bindInto(specs, made, buffers);
      rehearse(program.steps);
    }).then(error => { if (error) program.failure = error.message; });
    if (bad) return "launch:" + bad.error;
    programs.set(++lastNumber, program);
    return lastNumber;
  };
  const fetch = (fill, nbytes) => {
    const staging = device.createBuffer({ size: nbytes, usage: 0x0001 | 0x0008 });
    const scope = scoped(() => submitted(encoder => fill(encoder, staging)));
    const ready = bounded((async () => {
      const failed = await staging.mapAsync(1).then(() => null, error => error);
      const error = await scope;
      if (!failed && !error) return 0;
      // The loss is told by another promise, which may come a moment later than this refusal.
      if (failed) await new Promise(later => setTimeout(later, 20));
      throw error || failed;
    })());
    tickets.set(++lastNumber, { staging, ready });
    return lastNumber;
  };

  return {
    lost: () => lost,
    limits: () => {
      const found = {};
      for (const name in device.limits)
        if (typeof device.limits[name] === "number") found[name] = device.limits[name];
      return JSON.stringify(found);
    },
    lose,
    text: source => texts.push(source) - 1,
    // Compilers are slow where work is not: software adapters take seconds for one pipeline.
    compile: (json, ...buffers) => bounded(assemble(JSON.parse(json), buffers), 4 * timeoutMs),
    compileNow: (json, ...buffers) => assembleNow(JSON.parse(json), buffers),
    failure: id => { const program = programs.get(id); return program ? program.failure : ""; },
    release: id => { programs.delete(id); },
    createBuffer: (size, usage, label) => device.createBuffer({ size, usage, label }),
    write: (buffer, offset, data) => {
      const view = data.getBuffer("u8");
      try {
        queue.writeBuffer(buffer, offset, view.data);
      } finally {
        view.release();
      }
    },
    destroyBuffer: buffer => { destroyed.add(buffer); buffer.destroy(); },
    copy: (...copies) => destroyedIn(copies, 2) || submitted(encoder => copyInto(encoder, copies)),
    submit: (id, ...copies) => {
      const program = programs.get(id);
      return destroyedIn(copies, 2) || destroyedIn(program.buffers, 3) || submitted(encoder => {
        copyInto(encoder, copies);
        encodePass(encoder, program.steps);
      });
    },
    encode: (pass, id) => encodeInto(pass, programs.get(id).steps, 1),
    // One timed pass in one submit. Its answer: how long until the work was done, in ms.
    shoot: (id, repeat, slot, evict, ...copies) => {
      const before = performance.now();
      const scope = scoped(() => submitted(encoder => {
        copyInto(encoder, copies);
        if (evict) encodePass(encoder, programs.get(evict).steps);
        const pass = querySet ? encoder.beginComputePass(timed(slot)) : encoder.beginComputePass();
        encodeInto(pass, programs.get(id).steps, repeat);
        pass.end();
      }));
      return bounded(queue.onSubmittedWorkDone().then(async () => {
        const took = performance.now() - before;
        const error = await scope;
        if (error) throw error;
        return took;
      }));
    },
    startRead: (buffer, nbytes) => fetch(
      (encoder, staging) => encoder.copyBufferToBuffer(buffer, 0, staging, 0, nbytes), nbytes),
    startResolve: count => fetch((encoder, staging) => {
      encoder.resolveQuerySet(querySet, 0, 2 * count, resolved, 0);
      encoder.copyBufferToBuffer(resolved, 0, staging, 0, 16 * count);
    }, 16 * count),
    startDrain: () => fetch(
      (encoder, staging) => encoder.copyBufferToBuffer(probe, 0, staging, 0, 4), 4),
    ready: ticket => tickets.get(ticket).ready,
    mapped: ticket => new Uint8Array(tickets.get(ticket).staging.getMappedRange()),
    end: ticket => {
      const held = tickets.get(ticket);
      tickets.delete(ticket);
      if (held) held.staging.destroy();
    },
    hide: yes => { saidHidden = yes; seen(); },
    hides: () => hidden() ? -1 : hides,
    shown: () => new Promise(go => {
      if (hidden() && !lost && !closed) unseen.push(go);
      else go(0);
    }),
    counts: () => JSON.stringify({ programs: programs.size, pipelines: pipelines.size,
      tickets: tickets.size, pending: pending.size, modules: modules.size }),
    close: destroy => {
      closed = true;
      if (inPage) document.removeEventListener("visibilitychange", seen);
      for (const held of tickets.values()) held.staging.destroy();
      tickets.clear(); programs.clear(); pipelines.clear(); modules.clear(); layouts.clear();
      probe.destroy();
      if (querySet) { querySet.destroy(); resolved.destroy(); }
      if (destroy) device.destroy();
      for (const go of unseen.splice(0)) go(0);
    },
  };
}
