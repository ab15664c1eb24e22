/**
 * What is known of the sessions, from their events alone.
 *
 * Rules:
 * - An event is taken once, by its place in its session; one that has none, a command, by its id.
 * - What is kept is bounded: `KEPT_EACH` events of a session, `KEPT` of all, `SESSIONS` sessions,
 *   `DECIDED` asks that are over. What is open is known by itself, not looked up in what is kept.
 *
 * It knows no page and no network, and the clock is handed in.
 */

import { input, line, said, summary } from "./words.js";

export const KEPT_EACH = 1_000;
export const KEPT = 60_000;
export const SESSIONS = 600;
const DECIDED = 30;
const OPEN_EACH = 256;
const RUNS_EACH = 64;
const AT_ONCE = 100;
const STALE_MS = 125_000;
const ENDS = new Set(["run.finished", "run.failed", "run.cancelled"]);
const HEARTBEAT = /^x\.[a-z0-9_-]+\.session\.session_heartbeat$/;

/**
 * @typedef {object} Entry an event that is kept
 * @property {number} no its number in its session, from 0
 * @property {object} event
 * @property {string} hay what a search looks through; made when first asked for
 * @property {""|"start"|"in"|"end"} run where it stands in a run
 */

/**
 * @typedef {object} Ask
 * @property {string} id the event's
 * @property {string} session
 * @property {string} tool
 * @property {string} prompt
 * @property {{id: string, label: string}[]} options
 * @property {boolean} here whether it can be answered from here, as far as it says itself
 * @property {number|null} until when nobody waits any more, in ms
 * @property {"open"|"answered"|"timeout"|"dismissed"} state
 * @property {{option?: string, text?: string, via?: string, cause?: string}} answer
 * @property {number} afterMs how long it was waited, of one that timed out
 * @property {string} endedAt
 */

class Session {
  constructor(id) {
    this.id = id;
    /** @type {Entry[]} */
    this.entries = [];
    /** @type {Map<string, Entry>} */
    this.known = new Map();
    this.taken = 0;
    this.epoch = -1;
    this.seq = -1;
    this.heard = 0;
    this.began = 0;
    this.runs = new Map();
    /** @type {Map<string, Ask>} */
    this.open = new Map();
    this.levels = new Map();
    this.beats = false;
    this.ended = false;
    this.missing = false;
    this.agent = "";
    this.model = "";
    this.title = "";
    this.doing = "";
  }

  /** @returns {"waiting"|"running"|"idle"|"stale"|"ended"} */
  state(now) {
    if (this.ended) return "ended";
    if (this.beats && now - this.heard > STALE_MS) return "stale";
    if (this.open.size) return "waiting";
    return this.runs.size ? "running" : "idle";
  }

  /** The number of the first event that is kept. */
  get first() {
    return this.taken - this.entries.length;
  }

  /** @returns {Entry[]} what an event led to, of what is kept */
  effects(id) {
    return this.entries.filter((one) => one.event.cause === id);
  }

  drop(count) {
    for (const one of this.entries.splice(0, count)) this.known.delete(one.event.id);
  }
}

export class Model {
  constructor() {
    /** @type {Map<string, Session>} */
    this.sessions = new Map();
    /** @type {Map<string, Ask>} */
    this.asks = new Map();
    /** @type {Ask[]} the newest first */
    this.decided = [];
    this.kept = 0;
    /** Told of an ask that opened, and of one that is over. */
    this.onask = () => {};
  }

  /**
   * @param {object} event
   * @param {number} now in ms
   * @returns {boolean} whether it was new
   */
  take(event, now) {
    if (typeof event.session !== "string") return false;
    const session = this.sessions.get(event.session) ?? this.#begin(event.session, now);
    if (Number.isInteger(event.seq)) {
      const epoch = event.epoch ?? 0;
      if (epoch < session.epoch || (epoch === session.epoch && event.seq <= session.seq))
        return false;
      [session.epoch, session.seq] = [epoch, event.seq];
      session.heard = Math.min(now, Date.parse(event.time) || now);
      session.began ||= session.heard;
      session.agent = line(event.agent);
      session.levels.set(event.type.split(".", 1)[0], event.capture);
    } else if (session.known.has(event.id)) return false;
    const entry = this.#keep(session, event);
    this.#learn(session, event);
    entry.run =
      event.type === "run.started"
        ? "start"
        : ENDS.has(event.type)
          ? "end"
          : session.runs.size
            ? "in"
            : "";
    return true;
  }

  /** Where the sessions stand that were heard of last, as a subscription's `from` has it. */
  positions() {
    return [...this.sessions.values()]
      .filter((one) => one.seq >= 0)
      .sort((a, b) => b.heard - a.heard)
      .map(({ id, epoch, seq }) => ({ session: id, epoch, seq }));
  }

  #begin(id, now) {
    if (this.sessions.size >= SESSIONS) {
      const [oldest] = [...this.sessions.values()].sort((a, b) => a.heard - b.heard);
      this.kept -= oldest.entries.length;
      for (const ask of oldest.open.values()) this.asks.delete(ask.id);
      this.sessions.delete(oldest.id);
    }
    const session = new Session(id);
    session.heard = now;
    this.sessions.set(id, session);
    return session;
  }

  #keep(session, event) {
    if (session.entries.length >= KEPT_EACH) this.#drop(session, AT_ONCE);
    const entry = { no: session.taken++, event, hay: "", run: "" };
    session.entries.push(entry);
    session.known.set(event.id, entry);
    if (++this.kept > KEPT) {
      let fullest = session;
      for (const one of this.sessions.values()) {
        if (one.entries.length > fullest.entries.length) fullest = one;
      }
      this.#drop(fullest, AT_ONCE);
    }
    return entry;
  }

  #drop(session, count) {
    const before = session.entries.length;
    session.drop(count);
    this.kept -= before - session.entries.length;
  }

  #learn(session, event) {
    const { type, data, run } = event;
    if (type === "session.started") {
      session.ended = false;
      session.model = line(said(data, "gen_ai.request.model") ?? session.model);
    } else if (type === "session.ended") {
      session.ended = true;
      session.runs.clear();
      for (const ask of session.open.values()) this.#end(ask, "dismissed", event);
    } else if (type === "run.started") {
      session.ended = false;
      if (session.runs.size >= RUNS_EACH) session.runs.clear();
      session.runs.set(run, event.id);
      if (said(data, "prompt")) session.title = line(data.prompt).slice(0, 200);
    } else if (ENDS.has(type)) session.runs.delete(run);
    else if (type === "attention.requested") this.#ask(session, event);
    else if (type.startsWith("attention.")) this.#outcome(session.open.get(event.subject), event);
    else if (HEARTBEAT.test(type)) session.beats = true;
    if (!type.startsWith("x.")) session.doing = event;
  }

  #ask(session, event) {
    const data = event.data ?? {};
    const options = Array.isArray(data.options) ? data.options : [];
    const cause = session.known.get(event.cause)?.event;
    const ask = {
      id: event.id,
      session: session.id,
      tool: line(event.subject ?? data.kind ?? ""),
      prompt: said(data, "prompt") ?? (cause ? input(cause.data) : ""),
      options: options.filter((one) => typeof one?.id === "string"),
      here: Array.isArray(data.respond_via) && data.respond_via.includes("control"),
      until: (typeof data.expires_at === "string" && Date.parse(data.expires_at)) || null,
      state: "open",
      answer: {},
      afterMs: 0,
      askedAt: event.time,
      endedAt: "",
    };
    if (session.open.size >= OPEN_EACH)
      this.#end(session.open.values().next().value, "dismissed", event);
    session.open.set(ask.id, ask);
    this.asks.set(ask.id, ask);
    this.onask(ask);
  }

  #outcome(ask, event) {
    if (!ask) return;
    if (event.type === "attention.answered") {
      const { option, text } = event.data?.answer ?? {};
      ask.answer = { option, text, via: event.data?.via, cause: event.cause };
    } else if (event.type === "attention.timeout") {
      ask.afterMs = Number.isFinite(event.data?.after_ms) ? event.data.after_ms : 0;
      this.#end(ask, "timeout", event);
    } else if (event.type === "attention.resolved") {
      this.#end(ask, ask.answer.via ? "answered" : "dismissed", event);
    }
  }

  #end(ask, state, event) {
    ask.state = state;
    ask.endedAt = event.time;
    this.sessions.get(ask.session).open.delete(ask.id);
    this.asks.delete(ask.id);
    this.decided.unshift(ask);
    if (this.decided.length > DECIDED) this.decided.pop();
    this.onask(ask);
  }
}

/** Whether an entry has all the words of a search in it. */
export function has(entry, words) {
  if (!words.length) return true;
  const { type, id, subject = "", run = "" } = entry.event;
  entry.hay ||= `${type} ${id} ${subject} ${run} ${summary(entry.event)}`.toLowerCase();
  return words.every((one) => entry.hay.includes(one));
}
