// The page of ddctl web. Everything that comes from the job is text: it enters the page by textContent and title only.
"use strict";

const INTERVAL_MS = 1000;
const EVENTS_SHOWN = 300;
const LARGE_CELLS = 128; // maximum number of ranks that are drawn with their numbers
const STATES = ["running", "starting", "waiting", "stopping", "failed", "ended", "spare", "left-out"];
const query = location.search; // the token

const at = (id) => document.getElementById(id);

function element(name, className, text) {
  const e = document.createElement(name);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}

function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// ---- numbers ----

function count(n) {
  return Number(n).toLocaleString("en-US");
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return (i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)) + " " + units[i];
}

function duration(seconds) {
  if (seconds < 0.000001) return "< 1 µs";
  if (seconds < 0.001) return Math.round(seconds * 1e6) + " µs";
  if (seconds < 1) return (seconds * 1e3).toFixed(seconds < 0.1 ? 1 : 0) + " ms";
  if (seconds < 60) return seconds.toFixed(seconds < 10 ? 1 : 0) + " s";
  const s = Math.floor(seconds), pad = (n) => String(n).padStart(2, "0");
  const days = Math.floor(s / 86400);
  return (days > 0 ? days + " d " : "") + Math.floor(s % 86400 / 3600) + ":" + pad(Math.floor(s % 3600 / 60)) + ":" + pad(s % 60);
}

// Return the samples of OpenMetrics text that have no labels.
function samplesOf(text) {
  const samples = new Map();
  for (const line of (text || "").split("\n")) {
    const m = /^(\w+) (\S+)$/.exec(line);
    if (m) samples.set(m[1], Number(m[2]));
  }
  return samples;
}

// ---- parts of the page ----

function facts(id, list) {
  at(id).replaceChildren(...list.filter((f) => f[1] !== undefined).map(([name, value]) => {
    const div = element("div");
    div.append(element("dt", "", name), element("dd", "", value));
    return div;
  }));
}

function failuresOf(state) {
  return state.events.filter((e) => e.event === "exit");
}

function jobState(state) {
  const finish = state.events.find((e) => e.event === "finish");
  if (finish) return finish.code === 0 ? ["finished", "succeeded"] : ["failed", "failed: exit code " + finish.code];
  if (state.ended) return ["finished", "ended"];
  return [state.status.state, state.status.state];
}

function showHead(state) {
  const [className, text] = jobState(state);
  document.title = text + " · " + state.job + " · ddrun";
  setText(at("job"), state.job);
  at("state").className = "badge " + className;
  setText(at("state"), text);
  setText(at("problem"), state.ended ? "The job has ended; this page no longer changes." : state.problem);
  at("problem").className = state.ended ? "over" : "";
}

function showFailure(state) {
  const failures = failuresOf(state);
  at("failure").hidden = failures.length === 0;
  if (failures.length === 0) return;
  const others = failures.length - 1;
  const why = failures[0].text || "";
  setText(at("failure-line"), why.startsWith("the job hung: ") ? why : failures[0].line); // a hung job has no first rank
  setText(at("failure-where"), failures[0].time + (others > 0 ? ", followed by " + count(others) + (others === 1 ? " other failure" : " other failures") : ""));
}

function showFacts(state) {
  const s = state.status, m = samplesOf(state.metrics);
  const seconds = (name) => m.has(name) ? duration(m.get(name)) : undefined;
  const inRound = s.nodes.filter((n) => n.first_rank !== undefined);
  const workers = (inRound.length > 0 ? inRound : s.nodes).reduce((sum, n) => sum + n.workers, 0);
  facts("facts", [
    ["Nodes", inRound.length > 0 ? count(inRound.length) : s.nodes.length + " of " + s.wanted],
    ["Workers", count(workers)],
    ["Round", String(s.round)],
    ["Restarts used", s.restarts + " of " + s.max_restarts],
    ["Running time", duration(s.seconds)],
    ["Time to start", seconds("ddrun_startup_seconds")],
    ["Time per step", s.steps ? duration(s.steps.seconds) : undefined],
    ["Last recovery", seconds("ddrun_recovery_seconds")],
    ["Lost nodes", m.get("ddrun_lost_nodes_total") ? count(m.get("ddrun_lost_nodes_total")) : undefined],
    ["Refused connections", m.get("ddrun_refused_connections_total") ? count(m.get("ddrun_refused_connections_total")) : undefined],
  ]);
  at("missing").hidden = !s.missing;
  setText(at("missing"), "Missing nodes: " + s.missing);
}

function showStragglers(state) {
  const list = state.ended ? [] : (state.status.steps || state.status).stragglers || [];
  at("stragglers").hidden = list.length === 0;
  at("stragglers").replaceChildren(...list.map((g) => element("li", "", "Straggler: " + g.text)));
}

// ---- nodes and ranks ----

let drawn = ""; // the shape of the picture: names and ranks of the nodes
let cells = []; // one for each worker

function nodeShape(nodes) {
  return JSON.stringify(nodes.map((n) => [n.name, n.workers, n.first_rank]));
}

function drawNode(node, i, large) {
  const card = element("div", "node" + (large ? " large" : "")), row = element("div", "cells"), title = element("span", "", node.name);
  const first = node.first_rank;
  if (first !== undefined)
    title.append(element("small", "", node.workers > 1 ? ` ranks ${first}–${first + node.workers - 1}` : ` rank ${first}`));
  title.title = node.name;
  for (let k = 0; k < node.workers; k++) {
    const e = element("i", "cell");
    row.append(e);
    const rank = first === undefined ? -1 : first + k;
    if (rank >= 0) e.dataset.rank = rank;
    cells.push({ node: i, rank, local: k, e, state: "", label: large && rank >= 0 ? String(rank) : "" });
  }
  card.append(title, row);
  return card;
}

function drawNodes(nodes) {
  const widest = nodes.reduce((most, n) => Math.max(most, n.workers), 1);
  const large = nodes.reduce((sum, n) => sum + n.workers, 0) <= LARGE_CELLS;
  const step = large ? 27 : 17;
  cells = [];
  at("nodes").style.setProperty("--node-width", Math.max(large ? 150 : 105, Math.min(widest, large ? 8 : 20) * step) + "px");
  at("nodes").replaceChildren(...nodes.map((n, i) => drawNode(n, i, large)));
  drawn = nodeShape(nodes);
}

function stateOfNode(state, node) {
  return state.ended && node.state !== "spare" && node.state !== "left-out" ? "ended" : node.state;
}

function showNodes(state) {
  const nodes = state.status.nodes, totals = new Map();
  const failed = new Set(failuresOf(state).filter((e) => e.round === state.status.round).map((e) => e.rank));
  if (nodeShape(nodes) !== drawn) drawNodes(nodes);
  for (const c of cells) {
    const node = nodes[c.node];
    const now = failed.has(c.rank) ? "failed" : stateOfNode(state, node);
    totals.set(now, (totals.get(now) || 0) + 1);
    if (now === c.state) continue;
    c.state = now;
    c.e.className = "cell " + (STATES.includes(now) ? now : "") + (c.rank >= 0 && c.rank === chosen ? " chosen" : "");
    c.e.title = (c.rank >= 0 ? "rank " + c.rank + ", " : "") + node.name + ", local rank " + c.local + ": " + now;
    c.e.textContent = now === "failed" ? "✕" : c.label;
  }
  at("legend").replaceChildren(...STATES.filter((s) => totals.has(s)).map((s) => {
    const li = element("li");
    li.append(element("i", "cell " + s, s === "failed" ? "✕" : ""), s + " " + count(totals.get(s)));
    return li;
  }));
}

// ---- output of a rank ----

let chosen = -1; // the rank whose output is shown
let choices = 0; // number of choices so far: requests for an earlier choice are not repeated
let over = false; // the job has ended

// Return the lines without terminal control sequences; of a line that was overwritten, as by a progress bar, the final text.
function plain(text) {
  return text.replace(/\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)/g, "").replace(/\r+$/gm, "").replace(/^.*\r/gm, "");
}

function showLog(log) {
  const pre = at("log"), atEnd = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 4;
  const none = log.text === "" ? "No output of this rank has passed through its agent." : "";
  setText(at("log-problem"), log.problem ? (over ? "The job has ended." : log.problem) : none);
  if (log.problem) return; // keep the lines shown so far
  setText(pre, plain(log.text));
  if (atEnd) pre.scrollTop = pre.scrollHeight;
}

async function followLog(choice) {
  if (choice !== choices) return;
  try {
    const reply = await fetch("log.json" + query + "&rank=" + chosen, { cache: "no-store" });
    const log = reply.ok ? await reply.json() : { text: "", problem: await reply.text() };
    if (choice === choices) showLog(log);
  } catch {
    // refresh() shows that ddctl web does not answer
  }
  if (choice === choices && !over) setTimeout(followLog, INTERVAL_MS, choice);
}

// Show the last lines of a rank; -1: hide them.
function choose(rank) {
  if (rank === chosen) return;
  chosen = rank;
  choices++;
  for (const c of cells) c.e.classList.toggle("chosen", rank >= 0 && c.rank === rank);
  at("log-part").hidden = rank < 0;
  setText(at("log-title"), "Last lines of rank " + rank);
  setText(at("log-problem"), "");
  setText(at("log"), "");
  if (rank >= 0) followLog(choices);
}

at("nodes").addEventListener("click", (event) => {
  const cell = event.target.closest("[data-rank]");
  if (cell) choose(Number(cell.dataset.rank));
});
at("log-close").addEventListener("click", () => choose(-1));

// ---- store ----

function table(id, head, rows, shares) {
  const most = Math.max(1, ...shares);
  const line = (name, values) => {
    const tr = element("tr");
    tr.append(...values.map((v) => element(name, "", v)));
    return tr;
  };
  const body = rows.map((row, i) => {
    const tr = line("td", row);
    tr.style.setProperty("--share", (100 * shares[i] / most).toFixed(1) + "%");
    return tr;
  });
  at(id).hidden = rows.length === 0;
  at(id).replaceChildren(line("th", head), ...body);
}

function showOperations(profile) {
  const list = profile.operations.filter((o) => o.count > 0).sort((a, b) => b.count - a.count);
  const head = ["Operation", "Count", "In", "Out"];
  if (profile.measured) head.push("Mean time", "Mean wait");
  table("operations", head, list.map((o) => {
    const row = [o.operation, count(o.count), bytes(o.bytes_in), bytes(o.bytes_out)];
    if (profile.measured) row.push(duration(o.service_ns / 1e9 / o.count), o.waits > 0 ? duration(o.wait_ns / 1e9 / o.waits) : "–");
    return row;
  }), list.map((o) => o.count));
}

function showStore(state) {
  const p = state.profile, m = samplesOf(state.metrics);
  at("store-part").hidden = !p;
  if (!p) return;
  facts("store-facts", [
    ["Keys", count(m.get("ddrun_store_keys") || 0)],
    ["Memory", bytes(m.get("ddrun_store_memory_bytes") || 0)],
    ["Connections", count(m.get("ddrun_store_connections") || 0)],
    ["Waiting requests", count(m.get("ddrun_store_waiting_requests") || 0)],
  ]);
  showOperations(p);
  const sizes = p.sizes.filter((c) => c.requests + c.replies > 0);
  table("sizes", ["Message size", "Requests", "Replies"],
    sizes.map((c) => [c.to === c.from ? bytes(c.from) : bytes(c.from) + " – " + bytes(c.to), count(c.requests), count(c.replies)]),
    sizes.map((c) => c.requests + c.replies));
  const keys = p.keys || [];
  table("keys", ["Hottest keys", "Operations"], keys.map((k) => [k.key, count(k.count)]), keys.map((k) => k.count));
}

// ---- events ----

let newest = "";

function showEvents(state) {
  const events = state.events.slice(-EVENTS_SHOWN).reverse();
  const mark = state.events.length + " " + JSON.stringify(events[0]);
  if (mark === newest) return;
  newest = mark;
  at("events").replaceChildren(...events.map((e) => {
    const li = element("li", e.event === "exit" || e.event === "leave" ? e.event : "");
    const time = element("time", "", String(e.time).slice(11, 19));
    time.title = e.time;
    li.append(time, element("span", "", e.line));
    return li;
  }));
}

// ---- refresh ----

function show(state) {
  showHead(state);
  showFailure(state);
  showFacts(state);
  showStragglers(state);
  showNodes(state);
  showStore(state);
  showEvents(state);
  at("timeline").hidden = !state.timeline;
  at("timeline-link").href = "timeline.json" + query;
}

async function refresh() {
  let ended = false;
  try {
    const reply = await fetch("state.json" + query, { cache: "no-store" });
    if (!reply.ok) throw new Error(await reply.text());
    const state = await reply.json();
    show(state);
    ended = over = state.ended;
  } catch (error) {
    setText(at("problem"), error instanceof TypeError ? "ddctl web does not answer; it may have exited." : String(error.message));
  }
  if (!ended) setTimeout(refresh, INTERVAL_MS);
}

refresh();
