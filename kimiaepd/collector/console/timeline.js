/** The events of the chosen session, with what caused what. */

import { attr, byId, el, mark, put } from "./dom.js";
import { Rows } from "./rows.js";
import { KEPT_EACH, has } from "./model.js";
import { block, clock, dumped, kind, line, summary } from "./words.js";

const LONGEST = 20_000;
const EFFECTS = 12;

export class Timeline {
  #items = [];
  #shown = null;
  selected = null;

  /** @param {import("./console.js").App} app */
  constructor(app) {
    this.app = app;
    this.fine = byId("fine");
    this.list = byId("event-list");
    this.detail = byId("detail");
    this.rows = new Rows(this.list, {
      height: 28,
      follows: true,
      make: () => this.#make(),
      fill: (row, item, index) => this.#fill(row, item, index),
      key: (item) => item.no,
      moved: () => app.draw(),
    });
    this.fine.addEventListener("change", () => app.draw());
    byId("follow").addEventListener("click", () => this.end());
  }

  get session() {
    return this.app.model.sessions.get(this.app.chosen);
  }

  /** Another session was chosen. */
  changed() {
    this.select(null);
    this.rows.jump(true);
  }

  render() {
    const { session } = this;
    const items = session ? session.entries.filter((one) => this.#isShown(one)) : [];
    this.#items = items;
    this.#related = this.#relate(session);
    this.rows.render(items);
    attr(this.list, "aria-rowcount", String(items.length));
    attr(this.list, "aria-activedescendant", this.selected && items.includes(this.selected) ? `e-${this.selected.no}` : null);
    this.list.hidden = !items.length;
    byId("no-events").hidden = items.length > 0;
    put(byId("no-events"), !session ? "Choose a session." : session.entries.length ? "No event matches." : "No event yet.");
    if (!this.selected && this.rows.isAtEnd) this.rows.follows = true;
    byId("follow").hidden = this.rows.follows || !items.length;
    this.#about(session);
  }

  /** Choose an event; null: none. */
  select(entry) {
    this.selected = entry;
    if (entry) {
      this.rows.follows = false;
      if (!this.#isShown(entry)) {
        this.fine.checked = true;
        this.app.unsearch();
      }
    }
    this.#tell(entry); // first: it takes room from the list
    this.render();
    if (entry) this.rows.show(this.#items.indexOf(entry));
    this.render();
  }

  step(by) {
    const at = this.selected ? this.#items.indexOf(this.selected) : by > 0 ? -1 : this.#items.length;
    const from = at < 0 && this.rows.follows ? this.#items.length - 1 - Math.min(by, 0) : at;
    const to = Math.min(this.#items.length - 1, Math.max(0, from + by));
    if (this.#items[to]) this.select(this.#items[to]);
  }

  start() {
    this.rows.jump(false);
    this.app.draw();
  }

  /** Back to what is new. */
  end() {
    this.select(null);
    this.rows.jump(true);
    this.app.draw();
  }

  /** To the event that caused the chosen one, or to the first that it led to. */
  trace(toCause) {
    const { event } = this.selected ?? {};
    if (!event) return;
    this.go(toCause ? event.cause : this.session.effects(event.id)[0]?.event.id);
  }

  /** To an event of this session by its id. */
  go(id) {
    const entry = this.session?.known.get(id);
    if (!entry) {
      if (id) this.app.announce("This event is not kept any more.");
      return;
    }
    this.select(entry);
    const row = byId(`e-${entry.no}`);
    row?.classList.remove("flash");
    void row?.offsetWidth; // begins the animation anew
    row?.classList.add("flash");
  }

  #related = { cause: "", effects: new Set() };

  #relate(session) {
    const event = this.selected?.event;
    if (!event || !session) return { cause: "", effects: new Set() };
    return { cause: event.cause ?? "", effects: new Set(session.effects(event.id).map((one) => one.event.id)) };
  }

  #isShown(entry) {
    const isStory = this.fine.checked || !entry.event.type.startsWith("x.") || entry === this.selected;
    return isStory && has(entry, this.app.words);
  }

  #make() {
    const time = el("span", { role: "gridcell", class: "time" });
    const name = el("span", { role: "gridcell", class: "kind" });
    const what = el("span", { role: "gridcell", class: "what" });
    const link = el("button", { type: "button", tabindex: "-1", class: "cause", onclick: (click) => {
      click.stopPropagation();
      this.go(row.entry.event.cause);
    } });
    const row = el("div", { role: "row", class: "event", onclick: () => this.select(row.entry) },
      time, name, what, el("span", { role: "gridcell" }, link));
    return Object.assign(row, { parts: { time, name, what, link } });
  }

  #fill(row, entry, index) {
    const { event } = entry;
    const { time, name, what, link } = row.parts;
    const { cause, effects } = this.#related;
    attr(row, "aria-selected", String(entry === this.selected));
    mark(row, "rel", event.id === cause ? "cause" : effects.has(event.id) ? "effect" : "");
    const before = this.#items[index - 1];
    const at = clock(event.time);
    attr(row, "aria-rowindex", String(index + 1));
    mark(time, "same", String(before !== undefined && clock(before.event.time) === at));
    if (row.entry === entry) return;
    row.entry = entry;
    row.id = `e-${entry.no}`;
    row.classList.remove("flash");
    mark(row, "category", event.type.split(".", 1)[0]);
    mark(row, "severity", event.severity ?? "");
    mark(row, "run", entry.run);
    mark(row, "type", event.type);
    put(time, at);
    put(name, kind(event.type));
    put(what, summary(event));
    const from = this.session.known.get(event.cause);
    link.hidden = !from;
    put(link, from ? `\u2196 ${kind(from.event.type)}` : "");
    if (from) attr(link, "aria-label", `Caused by ${kind(from.event.type)}: go there`);
  }

  #about(session) {
    put(byId("timeline-title"), session ? line(session.id) : "Timeline");
    if (!session) return put(byId("about"), "");
    const levels = [...session.levels].filter(([category]) => !["attention", "control", "agent"].includes(category));
    const usual = levels[0]?.[1] ?? "metadata";
    const different = [...session.levels].filter(([category, level]) => level !== usual && category !== "control");
    const kept = session.entries.length;
    const parts = [
      line(session.agent),
      session.model,
      `capture ${usual}${different.map(([category, level]) => `, ${category} ${level}`).join("")}`,
      kept < session.taken ? `newest ${kept} of ${session.taken} events kept` : `${kept} events, ${KEPT_EACH} at most are kept`,
      session.missing ? "earlier ones are not held any more" : "",
      takes(this.app.accepts(session.id)),
    ];
    put(byId("about"), parts.filter(Boolean).join(" \u00b7 "));
  }

  #tell(entry) {
    if (entry === this.#shown) return;
    this.#shown = entry;
    this.detail.hidden = !entry;
    this.detail.replaceChildren();
    if (!entry) return;
    const { data, ...rest } = entry.event;
    const facts = Object.entries(rest).filter(([name]) => !["aep", "type", "cause", "source"].includes(name));
    const effects = this.session.effects(entry.event.id);
    const go = (id, mark) => {
      const found = this.session.known.get(id);
      const text = found ? `${mark} ${kind(found.event.type)}` : `${mark} ${line(id)}`;
      return el("button", { type: "button", class: "link", disabled: !found, onclick: () => this.go(id) }, text);
    };
    const links = [
      ...(entry.event.cause ? [go(entry.event.cause, "\u2196 caused by")] : []),
      ...effects.slice(0, EFFECTS).map((one) => go(one.event.id, "\u2198 led to")),
      ...(effects.length > EFFECTS ? [`and ${effects.length - EFFECTS} more`] : []),
    ];
    const text = dumped(data ?? {}, 2);
    this.detail.append(
      el("div", { class: "head" },
        el("h3", {}, line(entry.event.type)),
        el("button", { type: "button", class: "quiet", "aria-label": "Close the details", onclick: () => this.select(null) }, "\u00d7")),
      el("p", { class: "links" }, ...links),
      el("dl", {}, ...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, line(value))))),
      el("pre", { tabindex: "0", "aria-label": "Payload" }, block(text.slice(0, LONGEST)) + (text.length > LONGEST ? "\n... cut" : "")),
    );
  }
}

const VERBS = { "control.attention.respond": "answers", "control.cancel": "cancel", "x.kimi-code.control.instruct": "instructions" };

function takes(accepts) {
  if (!accepts) return "nobody there to take commands";
  const known = accepts.map((one) => VERBS[one] ?? kind(one));
  return known.length ? `takes ${known.join(", ")}` : "takes no commands";
}
