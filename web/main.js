// Shows what lab.py says and passes on what is clicked. It decides nothing about tuning.
const $ = id => document.getElementById(id);
const worker = new Worker("worker.js", { type: "module" });
const call = (name, ...args) => worker.postMessage({ call: name, args });
const element = (tag, text, className) => {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
};
const wanted = () => location.hash.slice(1).split("/").map(decodeURIComponent);
let kernels = [];

function offer(select, entries, chosen) {
  select.replaceChildren(...entries.map(([value, text]) => {
    const option = element("option", text);
    option.value = value;
    option.selected = value === chosen;
    return option;
  }));
  select.disabled = false;
}

function sizes(chosen) {
  const kernel = kernels.find(({ name }) => name === $("kernel").value);
  offer($("size"), kernel.sizes, chosen);
  $("summary").textContent = kernel.summary;
}

function choose() {
  history.replaceState(null, "", `#${$("kernel").value}/${$("size").value}`);
  call("choose", $("kernel").value, $("size").value);
}

const show = {
  loading: ({ text }) => { $("adapter").textContent = text; },
  trouble: ({ text }) => {
    $("adapter").className = "trouble";
    $("adapter").textContent = text;
    document.body.dataset.state = "trouble";
  },
  device: ({ label, facts, footer }) => {
    $("adapter").className = "";
    $("adapter").textContent = label;
    $("facts").replaceChildren(...facts.flatMap(([name, value]) =>
      [element("dt", name), element("dd", value)]));
    $("footer").textContent = footer;
  },
  kernels: ({ entries, kernel, size }) => {
    kernels = entries;
    const [name, extent] = wanted();
    const known = kernels.some(entry => entry.name === name);
    offer($("kernel"), kernels.map(entry => [entry.name, entry.name]), known ? name : kernel);
    sizes(known ? extent : size);
    $("tune").disabled = false;
    choose();
  },
  remembered: ({ entries }) => {
    $("remembered").hidden = !entries.length;
    $("remembered").replaceChildren(...entries.map(pick => {
      const link = element("a", pick.text);
      link.href = `#${pick.kernel}/${pick.size}`;
      return link;
    }));
  },
  outcome: view => requestAnimationFrame(() => {
    $("outcome").hidden = !view.verdict;
    $("verdict").textContent = view.verdict;
    $("badge").textContent = view.badge;
    $("badge").className = view.state;
    $("badge").hidden = !view.badge;
    $("progress").hidden = view.state !== "tuning";
    $("bar").style.width = `${view.progress}%`;
    $("status").textContent = view.status;
    $("figures").replaceChildren(...view.figures.map(([value, name]) => {
      const box = document.createElement("div");
      box.append(element("b", value), element("span", name));
      return box;
    }));
    $("table").hidden = !view.rows.length;
    $("table").tBodies[0].replaceChildren(...view.rows.map(row => {
      const line = document.createElement("tr");
      line.className = row.kind;
      const bar = document.createElement("td");
      bar.className = "wide";
      if (row.bar) bar.append(Object.assign(document.createElement("i"), {
        style: `width:${row.bar}%` }));
      line.append(element("td", row.place, "number"), element("td", row.name, "name"),
        element("td", row.time, "number"), element("td", row.interval, "number"),
        element("td", row.ratio, "number"), bar, element("td", row.verdict, "reason"));
      return line;
    }));
    $("tune").disabled = view.state === "tuning";
    $("tune").textContent = view.button;
    $("kernel").disabled = $("size").disabled = view.state === "tuning";
    document.body.dataset.state = view.state;
  }),
};

worker.onmessage = ({ data }) => show[data.kind](data);
worker.onerror = event => show.trouble({ text: event.message || "The worker could not be started." });
$("kernel").onchange = () => { sizes(); choose(); };
$("size").onchange = choose;
$("form").onsubmit = event => { event.preventDefault(); call("tune"); };
addEventListener("hashchange", () => {
  const [name, extent] = wanted();
  if (!kernels.some(kernel => kernel.name === name)) return;
  $("kernel").value = name;
  sizes(extent);
  choose();
});
// A worker cannot see whether its page is shown, and hidden pages are starved.
const relay = () => call("hide", document.visibilityState === "hidden");
document.addEventListener("visibilitychange", relay);
