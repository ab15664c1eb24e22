/** What waits for somebody, and what came of it. */

import { attr, byId, el, mark, put } from "./dom.js";
import { block, clock, duration, line, short } from "./words.js";

export const RESPOND = "control.attention.respond";
const SHOWN = 50;
/** A key or a click that was meant for one ask must not answer the one that took its place. */
const SETTLE_MS = 700;

export class Inbox {
  /** @type {Map<string, HTMLElement>} */
  #cards = new Map();
  /** What became of our answers, by ask. */
  #sent = new Map();
  #changedAt = 0;
  #movedAt = 0;
  chosen = "";

  /** @param {import("./console.js").App} app */
  constructor(app) {
    this.app = app;
    this.list = byId("asks");
    this.scroll = byId("inbox-scroll");
  }

  /** Those that can be answered come before those that are only asked elsewhere. */
  get #open() {
    const asks = [...this.app.model.asks.values()];
    return [...asks.filter((one) => one.here), ...asks.filter((one) => !one.here)].slice(0, SHOWN);
  }

  render(now) {
    const asks = this.#open;
    const ids = new Set(asks.map((one) => one.id));
    for (const [id, card] of this.#cards) {
      if (ids.has(id)) continue;
      if (card.contains(document.activeElement)) this.scroll.focus({ preventScroll: true });
      if (card.nextElementSibling) this.#movedAt = now;
      card.remove();
      this.#cards.delete(id);
    }
    if (!ids.has(this.chosen)) {
      this.chosen = asks[0]?.id ?? "";
      this.#changedAt = now;
    }
    for (const ask of asks) {
      let card = this.#cards.get(ask.id);
      if (!card) {
        card = this.#make(ask);
        this.#cards.set(ask.id, card);
        const next = asks.slice(asks.indexOf(ask) + 1).map((one) => this.#cards.get(one.id)).find(Boolean);
        this.list.insertBefore(card, next ?? null);
        if (next) this.#movedAt = now;
      }
      this.#fill(card, ask, now);
    }
    const total = this.app.model.asks.size;
    put(byId("inbox-title"), total ? `Inbox (${total})` : "Inbox");
    byId("no-asks").hidden = total > 0;
    this.list.hidden = !total;
    this.#renderDecided();
  }

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
    this.#cards.get(this.chosen)?.querySelector("input:not([disabled])")?.focus();
  }

  /**
   * Answer the chosen ask by a key.
   * @param {(options: {id: string}[]) => {id: string}|undefined} pick
   */
  byKey(pick, now) {
    const ask = this.app.model.asks.get(this.chosen);
    if (!ask || now - this.#changedAt < SETTLE_MS) return;
    const option = pick(ask.options);
    if (option) this.answer(ask, option.id);
  }

  #byMouse(ask, option) {
    if (Date.now() - this.#movedAt < SETTLE_MS) this.app.announce("The list moved just now: press again.");
    else this.answer(ask, option);
  }

  /**
   * Answer an ask: an option, a text, or both.
   * @param {import("./model.js").Ask} ask
   * @param {string|null} option
   */
  async answer(ask, option) {
    if (this.#cannot(ask) || this.#sent.get(ask.id)?.state === "sent") return;
    const text = this.#cards.get(ask.id)?.parts.text.value.trim() ?? "";
    if (option === null && !text) return;
    const answer = { ...(option === null ? {} : { option }), ...(text ? { text } : {}) };
    const about = { session: ask.session, subject: ask.id, cause: ask.id };
    const { id, outcome } = this.app.link.command(RESPOND, about, { answer }, text ? "redacted" : "metadata");
    this.#sent.set(ask.id, { id, state: "sent", said: "sending" });
    if (this.#sent.size > 200) this.#sent.delete(this.#sent.keys().next().value);
    this.app.draw();
    const { accepted, reason, detail } = await outcome;
    const sent = { id, state: accepted ? "accepted" : "refused", said: line([reason, detail].filter(Boolean).join(": ")) };
    this.#sent.set(ask.id, sent);
    if (!accepted) {
      this.app.announce(ask.state === "open" ? `The answer was refused: ${sent.said}` : "The answer came too late.");
    }
    this.app.draw();
  }

  /** What came of an ask, in a few words. */
  outcome(ask) {
    const sent = this.#sent.get(ask.id);
    const isOurs = sent && ask.answer.cause === sent.id;
    const late = sent && !isOurs && sent.state === "refused" ? " Your answer came too late." : "";
    if (ask.state === "timeout") return `Nobody answered in ${duration(ask.afterMs)}: the call went on.${late}`;
    if (ask.state === "dismissed") return `Given up before an answer.${late}`;
    const option = ask.options.find((one) => one.id === ask.answer.option);
    const what = option ? label(option) : line(ask.answer.option ?? "answered");
    const who = isOurs ? "by you" : ask.answer.via === "oob" ? "at the terminal" : "by somebody else";
    return `${what}, ${who}${ask.answer.text ? `: ${line(ask.answer.text)}` : ""}.${late}`;
  }

  #cannot(ask) {
    if (!ask.here) return "Asked at the terminal: answer it there.";
    if (this.app.isReadOnly) return "This page only observes. To answer, open it with: kimiaepd console";
    if (!this.app.isLive) return "Not connected.";
    const accepts = this.app.accepts(ask.session);
    if (accepts && !accepts.includes(RESPOND)) return "The session's daemon takes no answers.";
    return "";
  }

  #make(ask) {
    const time = el("span", { class: "left", "aria-hidden": "true" });
    const bar = el("progress", { max: "1", "aria-label": "Time left" });
    const said = el("p", { class: "said" });
    const text = el("input", { placeholder: "Reason, or an answer in words", "aria-label": `Reason for ${ask.tool}`, maxlength: "4000", autocomplete: "off" });
    text.addEventListener("keydown", (key) => {
      if (key.key === "Enter" && !key.isComposing) this.answer(ask, null);
    });
    const buttons = ask.options.map((option, place) =>
      el("button", { type: "button", "data-option": option.id, class: place ? "" : "main", onclick: () => this.#byMouse(ask, option.id) }, label(option)));
    const answers = el("div", { class: "answers" }, text, el("div", { class: "buttons" }, ...buttons));
    const card = el("li", { class: "ask", "aria-label": `${ask.tool} in ${short(ask.session)}`, onpointerdown: () => this.choose(ask.id) },
      el("div", { class: "top" },
        el("b", {}, ask.tool),
        el("button", { type: "button", class: "link", title: ask.session, onclick: () => this.app.showEvent(ask.session, ask.id) }, short(ask.session)),
        time),
      bar,
      el("pre", { tabindex: "0", "aria-label": "What is asked" }, block(ask.prompt)),
      answers,
      said);
    return Object.assign(card, { parts: { time, bar, said, text, buttons, answers }, from: Date.now() });
  }

  #fill(card, ask, now) {
    const { time, bar, said, text, buttons, answers } = card.parts;
    const why = this.#cannot(ask);
    const sent = this.#sent.get(ask.id);
    mark(card, "chosen", String(ask.id === this.chosen));
    mark(card, "urgent", String(ask.until !== null && ask.until - now < 10_000));
    if (ask.until === null) put(time, `since ${clock(ask.askedAt)}`);
    else put(time, ask.until > now ? `${Math.ceil((ask.until - now) / 1000)} s` : "time is up");
    bar.hidden = ask.until === null;
    const whole = (ask.until ?? now) - (Date.parse(ask.askedAt) || card.from);
    bar.value = whole > 0 ? Math.max(0, ((ask.until ?? now) - now) / whole) : 0;
    const isBusy = Boolean(why) || sent?.state === "sent" || sent?.state === "accepted";
    answers.hidden = Boolean(why) && (!ask.here || this.app.isReadOnly);
    for (const one of [text, ...buttons]) one.disabled = isBusy;
    if (why) put(said, why);
    else if (!sent) put(said, "");
    else put(said, { sent: "Sending\u2026", accepted: "Accepted.", refused: `Refused: ${sent.said}` }[sent.state]);
    mark(said, "bad", String(!why && sent?.state === "refused"));
  }

  #renderDecided() {
    const { decided } = this.app.model;
    byId("decided-title").hidden = !decided.length;
    const list = byId("decided");
    while (list.childElementCount > decided.length) list.lastChild.remove();
    while (list.childElementCount < decided.length) {
      const parts = { tool: el("b"), prompt: el("span", { class: "what" }), when: el("span", { class: "when" }), came: el("span", { class: "came" }) };
      const item = el("li", {}, el("button", { type: "button", class: "plain", onclick: () => this.app.showEvent(item.ask.session, item.ask.id) },
        el("span", { class: "top" }, parts.tool, parts.prompt, parts.when), parts.came));
      list.append(Object.assign(item, { parts }));
    }
    decided.forEach((ask, place) => {
      const item = list.children[place];
      item.ask = ask;
      put(item.parts.tool, ask.tool);
      put(item.parts.prompt, line(ask.prompt));
      put(item.parts.when, clock(ask.endedAt));
      put(item.parts.came, this.outcome(ask));
      attr(item, "data-state", ask.state === "answered" && isDeny(ask.answer.option) ? "denied" : ask.state);
    });
  }
}

/** The options that refuse, of the gate and of kimi web. */
export const isDeny = (option) => ["deny", "rejected", "cancel"].includes(option);

/** A label that is a position only says nothing: then it is the option's name. */
function label(option) {
  const text = line(option.label ?? "");
  return text && !/^\d+$/.test(text) ? text : line(option.id);
}
