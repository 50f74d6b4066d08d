// The panels beside and below the map. Each is drawn anew when its part of the picture has changed.
import { byId, html, setText, svg } from "./dom.js";
import { signOf } from "./overlay.js";
import { ago, bytes, clock, listed, number } from "./words.js";

const AWAY = { gone: "gone for", silent: "silent for", unheard: "not heard here for", unknown: "not heard yet" };

function doing(agent, now) {
  if (agent.presence === "unknown") return AWAY.unknown;
  if (agent.presence !== "there") return `${AWAY[agent.presence]} ${ago(now - (agent.heard || agent.since))}${agent.why ? `: ${agent.why}` : ""}`;
  if (agent.problem) return agent.problem;
  return agent.phase === "training" ? `${agent.words}, round ${agent.round}` : agent.words;
}

export function drawAgents(state, chosen, choose) {
  const rows = Object.entries(state.agents || {}).map(([name, agent]) => {
    const fresh = agent.new_rows ? html("span", { class: "fresh" }, ` + ${agent.new_rows} new`) : "";
    const hears = agent.presence === "there" ? (agent.hears || []).join(", ") || "nobody" : "";
    const button = html("button", { type: "button", class: "name", "aria-pressed": String(name === chosen), title: `Show where the rows of ${name} are` }, signOf(agent), name);
    button.addEventListener("click", () => choose(name === chosen ? "" : name));
    return html("tr", { class: agent.presence, "data-agent": name }, html("th", { scope: "row" }, button), html("td", {}, doing(agent, state.now)),
      html("td", { class: "number" }, agent.rows === undefined ? "" : String(agent.rows - agent.new_rows), fresh), html("td", { class: "wide quiet" }, hears));
  });
  const body = byId("agents").tBodies[0], focused = body.contains(document.activeElement) ? document.activeElement.closest("tr").dataset.agent : "";
  body.replaceChildren(...rows);
  if (focused) body.querySelector(`tr[data-agent="${CSS.escape(focused)}"] button`)?.focus();
  const kind = state.fleet.kind;
  setText("agents-title", kind[0].toUpperCase() + kind.slice(1));
}

function spark(values) {
  const [width, height] = [150, 26], logs = values.map((value) => Math.log(Math.max(value, 1e-300)));
  const low = Math.min(...logs), span = Math.max(Math.max(...logs) - low, 0.05);
  const at = (value, i) => `${((i / Math.max(1, logs.length - 1)) * (width - 6) + 3).toFixed(1)} ${(height - 4 - ((value - low) / span) * (height - 8)).toFixed(1)}`;
  const last = at(logs.at(-1), logs.length - 1).split(" ");
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "spark", "aria-hidden": "true" },
    svg("polyline", { points: logs.map(at).join(" ") }), svg("circle", { cx: last[0], cy: last[1], r: 2.6 }));
}

export function drawModel(state) {
  const model = state.model || {}, series = Object.values(state.series || {});
  if (!model.words) { byId("model").replaceChildren(html("p", { class: "quiet" }, "Nothing yet.")); return; }
  const lines = Object.entries(model.words).map(([, text], k) => {
    const values = series.map((entry) => entry.theta[k]).filter((value) => value > 0);
    const first = values[0] && Math.abs(values[0] / values.at(-1) - 1) > 0.02 ? `from ${number(values[0])}` : "";
    return html("li", {}, html("span", {}, text), html("span", { class: "trace" }, values.length > 1 ? spark(values) : "", html("small", { class: "quiet" }, first)));
  });
  const ended = model.status && model.status !== "converged" ? ` It ended by ${model.status}, not by agreement.` : "";
  const how = model.learning ? `Learning now, round ${model.round}: the estimates of neighbours are ${model.differ}.`
    : model.by.length ? `Learned by ${listed(model.by)} in ${model.round} rounds (${model.method}); their estimates are ${model.differ}.${ended}` : "";
  byId("model").replaceChildren(html("ul", { class: "facts" }, ...lines), html("p", { class: "quiet" }, how));
}

function bars(title, entries, most) {
  const sorted = entries.filter(([, size]) => size > 0).sort((a, b) => b[1] - a[1]), largest = sorted[0]?.[1] || 1;
  const rows = sorted.slice(0, most).map(([name, size]) => html("tr", {}, html("th", { scope: "row" }, name),
    html("td", { class: "bar" }, svg("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { width: Math.max(1, (100 * size) / largest), height: 8, rx: 2 }))), html("td", { class: "number" }, bytes(size))));
  const rest = sorted.length > most ? html("caption", { class: "quiet" }, `and ${sorted.length - most} more`) : "";
  return html("table", { class: "bars", "aria-label": title }, rest, html("tbody", {}, ...rows));
}

export function drawTraffic(state) {
  const links = Object.values(state.links || {}).map((link) => [`${link.a} – ${link.b}`, link.bytes]);
  byId("traffic").replaceChildren(html("div", { class: "two" },
    html("div", {}, html("h3", {}, "between whom"), bars("Bytes by link", links, 6)),
    html("div", {}, html("h3", {}, "of what kind"), bars("Bytes by kind", Object.entries(state.kinds || {}), 6))));
  const totals = state.totals || {}, cost = state.maps?.cost;
  const spent = cost ? ` Maps cost the fleet ${number(100 * cost.time, 2)} % of its time and ${number(100 * cost.bytes, 2)} % of its bytes.` : "";
  setText("cost", totals.bytes ? `${bytes(totals.bytes)} sent in all. ${totals.rows.toLocaleString("en")} rows${totals.new_rows ? `, ${totals.new_rows} of them new since the last learning` : ""}.${spent}` : "");
}

const SIGNS = { good: "✓", bad: "!", info: "·" };

export function drawEvents(state) {
  // Agents that are heard later may tell of earlier events.
  const events = Object.values(state.events || {}).reverse().sort((a, b) => b.t - a.t).slice(0, 30);
  byId("events").replaceChildren(...(events.length ? events.map((event) => html("li", { class: event.tone }, html("span", { class: "mark", "aria-hidden": "true" }, SIGNS[event.tone] || "·"), html("time", {}, clock(event.t)), html("span", {}, event.words)))
    : [html("li", { class: "quiet" }, "Nothing yet.")]));
}

export function drawQuestions(state) {
  const asked = Object.values(state.questions || {}).reverse();
  byId("questions").replaceChildren(...(asked.length ? asked.map((question) => {
    const points = question.points === 1 ? "1 point" : `${question.points.toLocaleString("en")} points`;
    const without = question.missing.length ? `, without ${listed(question.missing, 3)}` : "";
    return html("li", {}, html("span", { class: "mark", "aria-hidden": "true" }, "?"), html("time", {}, clock(question.t)), html("span", {}, `${question.agent} was asked for ${points}${question.by_page ? " here" : ""}; ${listed(question.took_part, 5)} had a say${without}.`));
  }) : [html("li", { class: "quiet" }, "Nobody yet.")]));
}
