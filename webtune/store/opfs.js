// Files of the origin private file system, and Web Locks, for opfs.py.
//
// The value of this file is a function of the time-out in ms, which gives an object of functions.
// Those that give a promise keep it, or reject it with a reason, within the time-out.
(timeoutMs) => {
  const held = new Map();
  let last = 0;
  const within = work => new Promise((done, fail) => {
    const late = () => fail(new Error(`no answer within ${timeoutMs / 1000} s`));
    const timer = setTimeout(late, timeoutMs);
    work().then(done, fail).finally(() => clearTimeout(timer));
  });
  const folder = async () => {
    if (!navigator.storage || !navigator.storage.getDirectory)
      throw new Error("this page has no origin private file system");
    if (!navigator.locks) throw new Error("this page has no Web Locks");
    const root = await navigator.storage.getDirectory();
    return root.getDirectoryHandle("webtune", { create: true });
  };
  return {
    // The text of a file; undefined where there is none.
    read: name => within(async () => {
      try {
        const file = await (await (await folder()).getFileHandle(name)).getFile();
        return await file.text();
      } catch (error) {
        if (error && error.name === "NotFoundError") return undefined;
        throw error;
      }
    }),
    // Replaces a file in one step, when its writer is closed; never after the time-out.
    write: (name, text) => {
      let writer = null, late = false;
      return within(async () => {
        const handle = await (await folder()).getFileHandle(name, { create: true });
        writer = await handle.createWritable();
        if (late) { await writer.abort(); return; }
        await writer.write(text);
        await writer.close();
      }).catch(error => {
        late = true;
        if (writer) writer.abort().catch(() => 0);
        throw error;
      });
    },
    // Waits for a lock and holds it. The ticket is for `release`; a lock also ends with its page.
    acquire: name => new Promise((done, fail) => {
      const ticket = ++last;
      const stop = new AbortController();
      const timer = setTimeout(() => {
        fail(new Error("another tab holds the lock"));
        stop.abort();
      }, timeoutMs);
      navigator.locks.request(name, { signal: stop.signal }, () => {
        clearTimeout(timer);
        return new Promise(release => { held.set(ticket, release); done(ticket); });
      }).catch(error => { clearTimeout(timer); fail(error); });
    }),
    release: ticket => {
      const release = held.get(ticket);
      held.delete(ticket);
      if (release) release(0);
    },
    // The names, as JSON, of all locks that any tab holds and that begin with the prefix.
    holding: prefix => within(async () => {
      const { held: locks } = await navigator.locks.query();
      return JSON.stringify(locks.map(lock => lock.name).filter(name => name.startsWith(prefix)));
    }),
    session: () => crypto.randomUUID(),
  };
};
