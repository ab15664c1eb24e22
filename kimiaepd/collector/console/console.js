/**
 * The console: what the daemon's own relay knows, and answers to what is asked.
 *
 * Rules:
 * - Events go into the model as they come; the page is drawn once a frame, and only what is in
 *   sight. A page that nobody looks at draws nothing and loses nothing.
 * - What the page shows is text. Nothing of it is kept but in memory.
 *
 * `door.js` gets the token, `link.js` talks, `model.js` knows, the others show and take orders.
 */

import { byId, mark, put } from "./dom.js";
import { Door } from "./door.js";
import { Inbox } from "./inbox.js";
import { listen } from "./keys.js";
import { Link } from "./link.js";
import { Model } from "./model.js";
import { Orders } from "./orders.js";
import { Sessions } from "./sessions.js";
import { Timeline } from "./timeline.js";
import { line, short } from "./words.js";

const FOCUS = { inbox: "inbox-scroll", sessions: "session-list", timeline: "event-list" };
const LINK = { connecting: "connecting", live: "live", lost: "disconnected", refused: "locked" };
const COUNTED = ["waiting", "running", "idle", "stale"];
const TICK_MS = 1_000;
const OLD_MS = 5_000;
const SAID_MS = 2_000;

export class App {
  model = new Model();
  /** The session that is chosen. */
  chosen = "";
  /** @type {string[]} what is searched for */
  words = [];
  isReadOnly = false;
  isLive = false;
  #accepts = new Map();
  #isDrawing = false;
  #retryAt = 0;
  #said = [];
  #saying = 0;

  constructor() {
    this.model.onask = (ask) => this.#onAsk(ask);
    this.link = new Link({
      event: (event) => this.#onEvent(event),
      missing: (id) => this.#onMissing(id),
      roster: (entries) => this.#onRoster(entries),
      positions: () => this.model.positions(),
      knows: (id) => this.model.sessions.has(id),
      state: (state, retryAt) => this.#onState(state, retryAt),
    });
    this.sessions = new Sessions(this);
    this.timeline = new Timeline(this);
    this.inbox = new Inbox(this);
    this.orders = new Orders(this);
    this.door = new Door((token, isReadOnly) => {
      this.isReadOnly = isReadOnly;
      byId("role").hidden = !isReadOnly;
      this.link.start(token);
    });
    this.#prepare();
  }

  #prepare() {
    this.#turn("inbox");
    for (const tab of byId("tabs").children) {
      tab.addEventListener("click", () => this.go(tab.dataset.to));
    }
    for (const close of document.querySelectorAll("[data-close]")) {
      close.addEventListener("click", () => close.closest("dialog").close());
    }
    byId("help-open").addEventListener("click", () => byId("help").showModal());
    byId("search").addEventListener("input", ({ target }) => this.#search(target.value));
    addEventListener("resize", () => this.draw());
    setInterval(() => this.draw(), TICK_MS);
    listen(this);
    this.door.come();
  }

  // --- for the parts -----------------------------------------------------------------------------

  /** Draw at the next frame; many wishes are one. */
  draw() {
    if (this.#isDrawing) return;
    this.#isDrawing = true;
    requestAnimationFrame(() => {
      this.#isDrawing = false;
      this.#render(Date.now());
    });
  }

  /** Choose a session; `open`: and go there, where there is room for one thing at a time. */
  choose(id, { open = false } = {}) {
    if (id !== this.chosen) {
      this.chosen = id;
      this.timeline.changed();
      put(byId("instructed"), "");
    }
    if (open) this.#turn("timeline");
    this.draw();
  }

  /** Show an event in its session. */
  showEvent(session, id) {
    this.choose(session, { open: true });
    this.timeline.go(id);
  }

  /** Go to a pane by its name. */
  go(name) {
    this.#turn(name);
    this.#render(Date.now());
    byId(FOCUS[name]).focus({ preventScroll: true });
    this.draw();
  }

  /** @returns {string[]|undefined} what the session's emitter takes; undefined: nobody claims it */
  accepts(session) {
    return this.#accepts.get(session);
  }

  /** Say it to who listens to the page. */
  announce(text) {
    this.#said = [...this.#said.slice(-3), text];
    byId("announcer").textContent = this.#said.join(". ");
    clearTimeout(this.#saying);
    this.#saying = setTimeout(() => (this.#said = []), SAID_MS);
  }

  /** Show every event, also those that are searched for no more. */
  unsearch() {
    byId("search").value = "";
    this.#search("");
  }

  #search(text) {
    this.words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.sessions.stir();
    this.draw();
  }

  // --- what comes --------------------------------------------------------------------------------

  #onEvent(event) {
    const count = this.model.sessions.size;
    const isTaken = this.model.take(event, Date.now());
    if (isTaken && event.type === "error.raised") this.inbox.failed(event);
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
      const said = Array.isArray(control?.accepts) ? control.accepts : [];
      const accepts = said.filter((one) => typeof one === "string");
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
    const age = Date.now() - (Date.parse(ask.endedAt || ask.askedAt) || 0);
    if (!this.isLive || age > OLD_MS) return; // of what is replayed nothing is announced
    const asked = `waits for an answer in ${short(ask.session)}: ${line(ask.prompt).slice(0, 120)}`;
    if (ask.state === "open") this.announce(`${ask.tool} ${asked}`);
    else this.announce(`${ask.tool}: ${this.inbox.outcome(ask)}`);
  }

  #onState(state, retryAt) {
    this.isLive = state === "live";
    this.#retryAt = retryAt;
    mark(byId("link"), "state", state);
    put(byId("link"), LINK[state]);
    if (state === "live" || state === "refused") byId("notice").hidden = true;
    if (state === "refused") this.door.reopen();
    this.draw();
  }

  // --- drawing -----------------------------------------------------------------------------------

  #render(now) {
    this.sessions.render(now);
    this.timeline.render();
    this.inbox.render(now);
    this.orders.render();
    const { counts } = this.sessions;
    const said = COUNTED.filter((one) => counts[one]).map((one) => `${counts[one]} ${one}`);
    put(byId("counts"), said.join(" \u00b7 "));
    const asks = this.model.asks.size;
    byId("badge").hidden = !asks;
    put(byId("badge"), String(asks));
    if (this.#retryAt) this.#notice(Math.ceil((this.#retryAt - now) / 1000));
  }

  #notice(seconds) {
    byId("notice").hidden = false;
    put(byId("notice-what"), "Disconnected from the daemon. What you see may be old.");
    put(byId("notice-when"), seconds > 1 ? `Trying again in ${seconds} s.` : "Trying again.");
  }

  #turn(name) {
    mark(document.body, "pane", name);
    for (const tab of byId("tabs").children) {
      if (tab.dataset.to === name) tab.setAttribute("aria-current", "true");
      else tab.removeAttribute("aria-current");
    }
  }
}

export const app = new App();
