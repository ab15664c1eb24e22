/**
 * The console: what the daemon's own relay knows, and answers to what is asked.
 *
 * Rules:
 * - Events go into the model as they come; the page is drawn once a frame, and only what is in
 *   sight. A page that nobody looks at draws nothing and loses nothing.
 * - The one-time code leaves the address at once. The token for it is in memory, and nowhere else.
 */

import { byId, mark, put } from "./dom.js";
import { Inbox, isDeny } from "./inbox.js";
import { Link } from "./link.js";
import { Model } from "./model.js";
import { Sessions } from "./sessions.js";
import { Timeline } from "./timeline.js";
import { line, short } from "./words.js";

const CANCEL = "control.cancel";
const INSTRUCT = "x.kimi-code.control.instruct";
const PANES = { i: "inbox", s: "sessions", t: "timeline" };
const FOCUS = { inbox: "inbox-scroll", sessions: "session-list", timeline: "event-list" };
const TICK_MS = 1_000;

export class App {
  model = new Model();
  chosen = "";
  /** @type {string[]} the words of the search */
  words = [];
  isReadOnly = false;
  isLive = false;
  #accepts = new Map();
  #drawing = false;
  #retryAt = 0;
  #said = [];

  constructor() {
    this.model.onask = (ask) => this.#onAsk(ask);
    this.link = new Link({
      event: (event) => this.#onEvent(event),
      missing: (session) => this.#onMissing(session),
      roster: (entries) => this.#onRoster(entries),
      positions: () => this.model.positions(500),
      knows: (session) => this.model.sessions.has(session),
      state: (state, retryAt) => this.#onState(state, retryAt),
    });
    this.sessions = new Sessions(this);
    this.timeline = new Timeline(this);
    this.inbox = new Inbox(this);
    setInterval(() => this.draw(), TICK_MS);
    addEventListener("resize", () => this.draw());
  }

  /** Draw at the next frame; many wishes are one. */
  draw() {
    if (this.#drawing) return;
    this.#drawing = true;
    requestAnimationFrame(() => {
      this.#drawing = false;
      this.#render(Date.now());
    });
  }

  /** Choose a session. */
  choose(id, { open = false, quietly = false } = {}) {
    if (id !== this.chosen) {
      this.chosen = id;
      this.timeline.changed();
      put(byId("instructed"), "");
    }
    if (open && !quietly) this.#pane("timeline");
    this.draw();
  }

  /** Show an event in its session. */
  showEvent(session, id) {
    this.choose(session, { open: true });
    this.timeline.go(id);
  }

  /** @returns {string[]|undefined} what the session's emitter takes; undefined: nobody claims it */
  accepts(session) {
    return this.#accepts.get(session);
  }

  /** Say it to who listens to the page. */
  announce(text) {
    this.#said = [...this.#said.slice(-3), text];
    byId("announcer").textContent = this.#said.join(". ");
    clearTimeout(this.saying);
    this.saying = setTimeout(() => (this.#said = []), 2_000);
  }

  unsearch() {
    this.words = [];
    byId("search").value = "";
    this.sessions.stir();
  }

  search(text) {
    this.words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.sessions.stir();
    this.draw();
  }

  // --- what comes --------------------------------------------------------------------------------

  #onEvent(event) {
    const count = this.model.sessions.size;
    this.model.take(event, Date.now());
    const isNew = this.model.sessions.size !== count;
    if (isNew || event.type === "agent.presence") this.link.lookAround();
    this.draw();
  }

  #onMissing(id) {
    const session = this.model.sessions.get(id);
    if (session) session.missing = true;
  }

  #onRoster(entries) {
    const found = new Map();
    for (const { session, control } of entries) {
      const accepts = Array.isArray(control?.accepts) ? control.accepts : [];
      // Where two claim a session, the relay sends a command to neither.
      found.set(session, found.has(session) ? [] : accepts);
    }
    this.#accepts = found;
    this.draw();
  }

  #onAsk(ask) {
    this.sessions.stir();
    const count = this.model.asks.size;
    document.title = count ? `(${count}) kimiaepd` : "kimiaepd";
    if (!this.isLive || this.#isOld(ask)) return;
    if (ask.state === "open") this.announce(`${ask.tool} waits for an answer in ${short(ask.session)}: ${line(ask.prompt).slice(0, 120)}`);
    else queueMicrotask(() => this.announce(`${ask.tool}: ${this.inbox.outcome(ask)}`));
  }

  /** Of what is replayed nothing is announced. */
  #isOld(ask) {
    return Date.now() - (Date.parse(ask.endedAt || ask.askedAt) || 0) > 5_000;
  }

  #onState(state, retryAt) {
    this.isLive = state === "live";
    this.#retryAt = retryAt;
    const link = byId("link");
    mark(link, "state", state);
    put(link, { connecting: "connecting", live: "live", lost: "disconnected", refused: "locked" }[state]);
    if (state === "live") byId("notice").hidden = true;
    if (state === "refused") open("The daemon does not know this page any more: it was started anew, or its token was. Get a new code:");
    this.draw();
  }

  // --- drawing -----------------------------------------------------------------------------------

  #render(now) {
    this.sessions.render(now);
    this.timeline.render();
    this.inbox.render(now);
    const { waiting = 0, running = 0, idle = 0, stale = 0 } = this.sessions.counts;
    const counts = [[waiting, "waiting"], [running, "running"], [idle, "idle"], [stale, "stale"]];
    put(byId("counts"), counts.filter(([count]) => count).map(([count, what]) => `${count} ${what}`).join(" \u00b7 "));
    const asks = this.model.asks.size;
    byId("badge").hidden = !asks;
    put(byId("badge"), String(asks));
    const accepts = this.isReadOnly || !this.isLive ? [] : this.accepts(this.chosen) ?? [];
    const session = this.timeline.session;
    byId("cancel").hidden = !(accepts.includes(CANCEL) && session?.runs.size);
    byId("instruct").hidden = !(accepts.includes(INSTRUCT) && session && !session.ended);
    this.#notice(now);
  }

  #notice(now) {
    if (!this.#retryAt) return;
    const seconds = Math.max(0, Math.ceil((this.#retryAt - now) / 1000));
    const notice = byId("notice");
    notice.hidden = false;
    put(notice, `Disconnected from the daemon. What you see may be old. ${seconds > 1 ? `Trying again in ${seconds} s.` : "Trying again."}`);
  }

  #pane(name) {
    mark(document.body, "pane", name);
    for (const tab of byId("tabs").children) {
      if (tab.dataset.to === name) tab.setAttribute("aria-current", "true");
      else tab.removeAttribute("aria-current");
    }
  }

  // --- hands -------------------------------------------------------------------------------------

  listen() {
    this.#pane("inbox");
    for (const tab of byId("tabs").children) tab.addEventListener("click", () => this.go(tab.dataset.to));
    byId("search").addEventListener("input", ({ target }) => this.search(target.value));
    byId("help-open").addEventListener("click", () => byId("help").showModal());
    for (const close of document.querySelectorAll("[data-close]")) {
      close.addEventListener("click", () => close.closest("dialog").close());
    }
    byId("cancel").addEventListener("click", () => this.#askCancel());
    byId("sure-yes").addEventListener("click", () => this.#cancel());
    byId("instruct").addEventListener("submit", (submit) => {
      submit.preventDefault();
      this.#instruct(byId("instruction"));
    });
    document.addEventListener("keydown", (key) => this.#onKey(key));
  }

  /** Go to a pane. */
  go(name) {
    this.#pane(name);
    this.#render(Date.now());
    byId(FOCUS[name]).focus({ preventScroll: true });
    this.draw();
  }

  #where() {
    const pane = document.activeElement?.closest("main > section")?.id;
    return pane ?? document.body.dataset.pane;
  }

  #onKey(key) {
    const isWriting = key.target.matches("input:not([type=checkbox])");
    if (key.key === "Escape") return this.#back(key);
    if (isWriting || key.ctrlKey || key.metaKey || key.altKey || document.querySelector("dialog[open]")) return;
    if (document.body.dataset.door === "open") return;
    const act = this.#act(key);
    if (!act) return;
    key.preventDefault();
    act();
  }

  /** @returns {(() => void)|undefined} what a key does here */
  #act({ key, repeat, target }) {
    const pane = this[this.#where()] ?? this.inbox;
    const once = (act) => (repeat ? () => {} : act);
    const option = Number(key);
    if (option >= 1 && option <= 9) return once(() => this.inbox.byKey((all) => all[option - 1], Date.now()));
    if (PANES[key]) return () => this.go(PANES[key]);
    if (key === "Enter" && target.matches("button, a, input")) return undefined;
    return {
      j: () => pane.step(1),
      k: () => pane.step(-1),
      ArrowDown: () => pane.step(1),
      ArrowUp: () => pane.step(-1),
      Enter: () => this.#enter(pane),
      a: once(() => this.inbox.byKey((all) => all.find((one) => !isDeny(one.id)), Date.now())),
      d: once(() => this.inbox.byKey((all) => all.find((one) => isDeny(one.id)), Date.now())),
      r: () => this.inbox.write(),
      x: () => this.timeline.trace(true),
      e: () => this.timeline.trace(false),
      g: () => this.timeline.start(),
      G: () => this.timeline.end(),
      v: () => byId("fine").click(),
      m: () => byId("instruct").hidden || byId("instruction").focus(),
      c: () => byId("cancel").hidden || this.#askCancel(),
      "/": () => byId("search").focus(),
      "?": () => byId("help").showModal(),
    }[key];
  }

  #enter(pane) {
    if (pane === this.inbox) this.inbox.open();
    else if (pane === this.sessions) this.go("timeline");
    else if (!this.timeline.selected) this.timeline.step(-1);
  }

  #back(key) {
    if (document.querySelector("dialog[open]")) return;
    if (key.target.id === "search" && this.words.length) this.unsearch();
    else if (key.target.matches("input")) key.target.blur();
    else this.timeline.select(null);
    this.draw();
  }

  #askCancel() {
    put(byId("sure-what"), `Session ${short(this.chosen)}: what the agent is doing now ends. What it has done stays done.`);
    byId("sure").showModal();
  }

  async #cancel() {
    byId("sure").close();
    const { chosen } = this;
    const [run] = this.timeline.session?.runs.keys() ?? [];
    const about = { session: chosen, ...(run ? { run } : {}) };
    const { outcome } = this.link.command(CANCEL, about, { scope: "run" }, "metadata");
    this.#say(chosen, "Cancel", await outcome);
  }

  async #instruct(input) {
    const text = input.value.trim();
    if (!text) return;
    const { chosen } = this;
    const { outcome } = this.link.command(INSTRUCT, { session: chosen }, { text }, "redacted");
    const said = await outcome;
    if (said.accepted && input.value.trim() === text) input.value = "";
    this.#say(chosen, "Instruction", said);
  }

  #say(session, what, { accepted, reason, detail }) {
    const text = accepted ? `${what}: accepted` : `${what}: refused, ${line(reason)}${detail ? ` (${line(detail)})` : ""}`;
    if (session === this.chosen) put(byId("instructed"), text);
    this.announce(text);
  }
}

// --- the door ------------------------------------------------------------------------------------

export const app = new App();

/** Ask for a code. */
function open(why) {
  if (why) put(byId("door-why"), why);
  if (!app.isLive) put(byId("link"), "locked");
  mark(document.body, "door", "open");
  byId("code").focus();
}

/** Exchange a code for a token, and begin. */
async function enter(code) {
  const said = byId("door-said");
  put(said, "");
  try {
    const body = JSON.stringify({ code });
    const answer = await fetch("/session", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    if (!answer.ok) {
      open();
      put(said, "This code is not good: it was used, or is older than 60 seconds. Get a new one.");
      return;
    }
    const { token, role } = await answer.json();
    app.isReadOnly = role !== "control";
    byId("role").hidden = !app.isReadOnly;
    byId("code").value = "";
    mark(document.body, "door", "shut");
    app.link.start(token);
  } catch {
    open();
    put(said, "The daemon does not answer.");
  }
}

app.listen();
byId("door").addEventListener("submit", (submit) => {
  submit.preventDefault();
  const typed = byId("code").value.trim();
  enter(typed.slice(typed.indexOf("#code=") < 0 ? 0 : typed.indexOf("#code=") + 6));
});
const [, code] = /^#code=(.+)$/.exec(location.hash) ?? [];
if (location.hash) history.replaceState(null, "", location.pathname);
if (code) enter(code);
else open();
