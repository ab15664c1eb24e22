/**
 * What waits for somebody, and answers to it.
 *
 * An answer must not meet another ask than it was meant for: what is pressed right after the list
 * changed under the hand answers nothing.
 */

import { label, outcome, renderDecided } from "./decided.js";
import { byId, make, mark, put, stamp } from "./dom.js";
import { block, clock, line, short, summary } from "./words.js";

const RESPOND = "control.attention.respond";
const SHOWN = 50;
const SENT = 200;
const SETTLE_MS = 700;
const URGENT_MS = 10_000;

export class Inbox {
  /** @type {Map<string, HTMLElement>} */
  #cards = new Map();
  /** @type {Map<string, {id: string, state: "sent"|"accepted"|"refused", why: string}>} */
  #sent = new Map();
  #changedAt = 0;
  #movedAt = 0;
  chosen = "";

  /** @param {import("./console.js").App} app */
  constructor(app) {
    this.app = app;
    this.list = byId("asks");
  }

  /** Those that can be answered come before those that are only asked elsewhere. */
  get #open() {
    const asks = [...this.app.model.asks.values()];
    return [...asks.filter((one) => one.here), ...asks.filter((one) => !one.here)].slice(0, SHOWN);
  }

  render(now) {
    const asks = this.#open;
    const ids = new Set(asks.map((one) => one.id));
    for (const [id, card] of this.#cards) if (!ids.has(id)) this.#remove(id, card, now);
    if (!ids.has(this.chosen)) {
      this.chosen = asks[0]?.id ?? "";
      this.#changedAt = now;
    }
    asks.forEach((ask, place) => {
      const card = this.#cards.get(ask.id) ?? this.#insert(ask, asks.slice(place + 1), now);
      this.#fill(card, ask, now);
    });
    const total = this.app.model.asks.size;
    put(byId("inbox-title"), total ? `Inbox (${total})` : "Inbox");
    byId("no-asks").hidden = total > 0;
    this.list.hidden = !total;
    renderDecided(this.app);
  }

  /** Choose the next ask, or the one before. */
  step(by) {
    const asks = this.#open;
    const at = asks.findIndex((one) => one.id === this.chosen);
    this.choose(asks[Math.min(asks.length - 1, Math.max(0, at + by))]?.id);
  }

  choose(id) {
    if (!id) return;
    this.chosen = id;
    this.#cards.get(id)?.scrollIntoView({ block: "nearest" });
    this.app.draw();
  }

  /** Show the chosen ask where it stands in its session. */
  open() {
    const ask = this.app.model.asks.get(this.chosen);
    if (ask) this.app.showEvent(ask.session, ask.id);
  }

  /** Write a reason for the chosen ask. */
  write() {
    this.#cards.get(this.chosen)?.parts.text.focus();
  }

  /** What came of an ask, in a few words. */
  outcome(ask) {
    return outcome(ask, this.#sent.get(ask.id));
  }

  /**
   * Answer the chosen ask by a key.
   * @param {(options: {id: string}[]) => {id: string}|undefined} pick
   */
  byKey(pick) {
    const ask = this.app.model.asks.get(this.chosen);
    const option = ask && Date.now() - this.#changedAt >= SETTLE_MS && pick(ask.options);
    if (option) this.answer(ask, option.id);
  }

  #byMouse(ask, option) {
    const isSettled = Date.now() - this.#movedAt >= SETTLE_MS;
    if (isSettled) this.answer(ask, option);
    else this.app.announce("The list moved just now: press again.");
  }

  /**
   * Answer an ask: an option, what is written beside it, or both.
   * @param {import("./model.js").Ask} ask
   * @param {string|null} option
   */
  async answer(ask, option) {
    const text = this.#cards.get(ask.id)?.parts.text.value.trim() ?? "";
    const isUnderWay = ["sent", "accepted"].includes(this.#sent.get(ask.id)?.state);
    if (this.#cannot(ask) || isUnderWay || (option === null && !text)) return;
    const answer = { ...(option === null ? {} : { option }), ...(text ? { text } : {}) };
    const about = { session: ask.session, subject: ask.id, cause: ask.id };
    const level = text ? "redacted" : "metadata";
    const sent = this.app.link.command(RESPOND, about, { answer }, level);
    this.#note(ask, { id: sent.id, state: "sent", why: "" });
    const { accepted, reason, detail } = await sent.outcome;
    const why = [reason, detail].filter(Boolean).map(line).join(": ");
    this.#note(ask, { id: sent.id, state: accepted ? "accepted" : "refused", why });
    if (accepted) return;
    const isLate = ask.state !== "open";
    this.app.announce(isLate ? "Your answer came too late." : `The answer was refused: ${why}`);
  }

  /** An answer that was accepted could not be carried out: it may be given again. */
  failed(event) {
    const found = [...this.#sent].find(([, sent]) => sent.id === event.cause);
    if (!found) return;
    const [id, sent] = found;
    this.#note({ id }, { ...sent, state: "refused", why: summary(event) });
    this.app.announce(`The answer could not be carried out: ${summary(event)}`);
  }

  #note(ask, sent) {
    this.#sent.set(ask.id, sent);
    if (this.#sent.size > SENT) this.#sent.delete(this.#sent.keys().next().value);
    this.app.draw();
  }

  /** @returns {string} why an ask cannot be answered from here; empty where it can */
  #cannot(ask) {
    const { app } = this;
    if (!ask.here) return "Asked at the terminal: answer it there.";
    if (app.isReadOnly) return "This page only observes. To answer, open: kimiaepd console";
    if (!app.isLive) return "Not connected.";
    const accepts = app.accepts(ask.session);
    return !accepts || accepts.includes(RESPOND) ? "" : "The session's daemon takes no answers.";
  }

  // --- cards -------------------------------------------------------------------------------------

  #insert(ask, later, now) {
    const card = this.#make(ask);
    const next = later.map((one) => this.#cards.get(one.id)).find(Boolean);
    if (next) this.#movedAt = now;
    this.list.insertBefore(card, next ?? null);
    this.#cards.set(ask.id, card);
    return card;
  }

  #remove(id, card, now) {
    if (card.nextElementSibling) this.#movedAt = now;
    if (card.contains(document.activeElement)) byId("inbox-scroll").focus({ preventScroll: true });
    card.remove();
    this.#cards.delete(id);
  }

  #make(ask) {
    const card = stamp("ask-template");
    const { tool, session, prompt, text, buttons } = card.parts;
    card.setAttribute("aria-label", `${ask.tool} in ${short(ask.session)}`);
    card.addEventListener("pointerdown", () => this.choose(ask.id));
    tool.textContent = ask.tool;
    session.textContent = short(ask.session);
    session.title = ask.session;
    session.addEventListener("click", () => this.app.showEvent(ask.session, ask.id));
    prompt.textContent = block(ask.prompt);
    text.setAttribute("aria-label", `Reason for ${ask.tool}`);
    text.addEventListener("keydown", (key) => {
      if (key.key === "Enter" && !key.isComposing) this.answer(ask, null);
    });
    for (const option of ask.options) {
      const button = make("button", label(option));
      button.dataset.option = option.id;
      button.className = buttons.childElementCount ? "" : "main";
      button.addEventListener("click", () => this.#byMouse(ask, option.id));
      buttons.append(button);
    }
    return card;
  }

  #fill(card, ask, now) {
    const { time, bar, said, text, buttons, answers } = card.parts;
    const why = this.#cannot(ask);
    const sent = this.#sent.get(ask.id);
    const left = ask.until === null ? Infinity : ask.until - now;
    mark(card, "chosen", String(ask.id === this.chosen));
    mark(card, "urgent", String(left < URGENT_MS));
    bar.hidden = ask.until === null;
    if (ask.until === null) put(time, `since ${clock(ask.askedAt)}`);
    else {
      const whole = ask.until - (Date.parse(ask.askedAt) || 0);
      put(time, left > 0 ? `${Math.ceil(left / 1000)} s` : "time is up");
      bar.value = whole > 0 ? Math.min(1, Math.max(0, left / whole)) : 0;
    }
    answers.hidden = Boolean(why) && (!ask.here || this.app.isReadOnly);
    const isBusy = Boolean(why) || sent?.state === "sent" || sent?.state === "accepted";
    for (const one of [text, ...buttons.children]) one.disabled = isBusy;
    const words = {
      sent: "Sending\u2026",
      accepted: "Accepted.",
      refused: `Refused: ${sent?.why}`,
    };
    put(said, why || (sent ? words[sent.state] : ""));
    mark(said, "bad", String(!why && sent?.state === "refused"));
  }
}
