/**
 * An event in a few words, for people. What a member is not there for, because of the capture
 * level, is left out; nothing is made up.
 */

/** What turns text around, takes no room or is no letter could make a command look like another. */
const UNFIT = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\u2028\u2029]/gu;

/** What of each type's data people are told, in this order. */
const TELLS = {
  "session.started": ["gen_ai.request.model", "client.name", "trigger"],
  "session.ended": ["reason", "detail"],
  "session.compacted": ["trigger", "estimated_token_count"],
  "run.started": ["prompt"],
  "run.finished": ["duration_ms", "summary"],
  "run.failed": ["reason", "error.type", "error.message", "duration_ms"],
  "run.cancelled": ["by", "duration_ms"],
  "tool.completed": ["tool.name", "status", "duration_ms"],
  "tool.failed": ["tool.name", "error.type", "error.message", "duration_ms"],
  "tool.denied": ["tool.name", "by", "rule"],
  "attention.requested": ["prompt"],
  "attention.answered": ["answer.option", "answer.text", "via"],
  "attention.resolved": ["resolution", "latency_ms"],
  "attention.timeout": ["after_ms"],
  "progress.status": ["message"],
  "error.raised": ["code", "error.type", "error.message"],
  "control.attention.respond": ["answer.option", "answer.text"],
  "control.cancel": ["scope", "reason"],
  "control.accepted": [],
  "control.rejected": ["reason", "detail"],
  "x.kimi-code.control.instruct": ["text"],
};
const INPUT = ["command", "path", "file_path", "url", "pattern", "query", "description"];

/** @param {unknown} text @returns {string} one line, with nothing in it that deceives */
export const line = (text) => plain(text).replace(/\s+/g, " ").trim().replace(UNFIT, "\uFFFD");

/** @param {unknown} text @returns {string} the same, with its lines */
export const block = (text) =>
  plain(text).replace(UNFIT, (one) => (one === "\n" || one === "\t" ? one : "\uFFFD"));

/** A member of a payload by its dotted path; a name may have dots of its own. */
export function said(data, path) {
  if (data === null || typeof data !== "object") return undefined;
  if (Object.hasOwn(data, path)) return data[path];
  const dot = path.indexOf(".");
  return dot < 0 ? undefined : said(data[path.slice(0, dot)], path.slice(dot + 1));
}

/** @param {number} ms @returns {string} `812 ms`, `4.2 s`, `3 m 05 s`, `2 h 10 m` */
export function duration(ms) {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  const [big, small, unit] = ms < 3_600_000 ? [60_000, 1_000, "ms"] : [3_600_000, 60_000, "hm"];
  if (ms >= 172_800_000) return `${Math.round(ms / 86_400_000)} days`;
  const rest = String(Math.floor((ms % big) / small)).padStart(2, "0");
  return `${Math.floor(ms / big)} ${unit[0]} ${rest} ${unit[1]}`;
}

/** @param {number} ms @returns {string} about how long ago: `now`, `40 s`, `12 m`, `3 h` */
export function ago(ms) {
  if (ms < 5_000) return "now";
  if (ms < 60_000) return `${Math.floor(ms / 1_000)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} m`;
  return ms < 172_800_000 ? `${Math.floor(ms / 3_600_000)} h` : `${Math.floor(ms / 86_400_000)} d`;
}

/** @param {string} time of an event @returns {string} the time of day, here */
export function clock(time) {
  const moment = new Date(time);
  if (Number.isNaN(moment.valueOf())) return "--:--:--";
  return [moment.getHours(), moment.getMinutes(), moment.getSeconds()]
    .map((one) => String(one).padStart(2, "0"))
    .join(":");
}

/** @param {string} session @returns {string} enough of a name to tell a day's sessions apart */
export const short = (session) => line(session.replace(/^session_/, "").slice(0, 8));

/** @param {string} type @returns {string} a type as rows have it; a vendor's without its prefix */
export const kind = (type) => line(type.replace(/^x\.[a-z0-9_-]+\./, ""));

/** Members that need a word before them. */
const BEFORE = {
  via: "via ",
  by: "by ",
  rule: "rule ",
  trigger: "trigger ",
  latency_ms: "after ",
  after_ms: "after ",
  duration_ms: "in ",
};

const joined = (parts) => parts.filter(Boolean).join(" \u00b7 ");

function told(path, value) {
  const text = word(path, value);
  return text && (BEFORE[path] ?? "") + text;
}

function word(path, value) {
  if (value === undefined || value === null) return "";
  if (path.endsWith("_ms") && typeof value === "number") return duration(value);
  return line(value).slice(0, 400);
}

const plain = (value) => (typeof value === "object" ? dumped(value) : String(value));

/** A value as JSON; one that is nested too deep for that is not shown. */
export function dumped(value, indent = 0) {
  try {
    return JSON.stringify(value, null, indent);
  } catch {
    return "\u2026";
  }
}

/** What a call is given, as far as the capture level lets it be seen. */
export function input(data) {
  const given = said(data, "args_redacted") ?? said(data, "args");
  if (given === null || typeof given !== "object") return "";
  const name = INPUT.find((one) => typeof given[one] === "string" && given[one]);
  return name ? word("", given[name]) : word("", given);
}

/** @returns {string} what an event says, in one line; empty where its type says it all */
export function summary(event) {
  const { type, data } = event;
  if (type === "tool.requested") {
    return joined([word("", said(data, "tool.name") ?? event.subject), input(data)]);
  }
  if (type === "run.started" && !said(data, "prompt"))
    return told("trigger", said(data, "trigger"));
  const tells = TELLS[type];
  if (tells) return joined(tells.map((path) => told(path, said(data, path))));
  const plain = Object.entries(data ?? {})
    .filter(([name, value]) => typeof value !== "object" && !name.endsWith("digest"))
    .map(([name, value]) => `${line(name)} ${word(name, value)}`);
  return joined([word("", event.subject), plain.join(", ")]);
}
