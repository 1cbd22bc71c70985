// The worker that inside.js starts: loads Python, then runs what it is sent.
import { startHere } from "./inside.js";

let started = null;
self.onmessage = async ({ data }) => {
  try {
    let value;
    if (data.options) {
      started = await startHere(data.options);
      value = started.times;
    } else {
      value = await started.call(data.source, data.name, data.args, data.blocking);
    }
    self.postMessage({ id: data.id, value });
  } catch (error) {
    self.postMessage({ id: data.id, error: String(error) });
  }
};
