/** The options of asks, and what came of those that are over. */

import { byId, mark, put, stamp } from "./dom.js";
import { clock, duration, line } from "./words.js";

/** The options that refuse, and those that let go on, of the gate and of kimi web. */
export const isDeny = (option) => ["deny", "rejected", "cancel"].includes(option);
export const isAllow = (option) => ["allow", "approved"].includes(option);

/** An option as people read it: a label that is only a position says less than its name. */
export function label(option) {
  const text = line(option.label ?? "");
  return text && !/^\d+$/.test(text) ? text : line(option.id);
}

/**
 * What came of an ask, in a few words.
 * @param {import("./model.js").Ask} ask
 * @param {{id: string, state: string}|undefined} sent our own answer
 */
export function outcome(ask, sent) {
  const { option: id, text, via, cause } = ask.answer;
  const isOurs = sent !== undefined && cause === sent.id;
  const late = sent?.state === "refused" && !isOurs ? " Your answer came too late." : "";
  if (ask.state === "timeout") {
    return `Nobody answered in ${duration(ask.afterMs)}: the call went on.${late}`;
  }
  if (ask.state === "dismissed") return `Given up before an answer.${late}`;
  const option = ask.options.find((one) => one.id === id);
  const what = option ? label(option) : line(id ?? "answered");
  const who = isOurs ? "by you" : via === "oob" ? "at the terminal" : "by somebody else";
  return `${what}, ${who}${text ? `: ${line(text)}` : ""}.${late}`;
}

/** Show the asks that are over. */
export function renderDecided(app) {
  const { decided } = app.model;
  const list = byId("decided");
  byId("decided-title").hidden = !decided.length;
  while (list.childElementCount > decided.length) list.lastChild.remove();
  while (list.childElementCount < decided.length) {
    const item = stamp("decided-template");
    const show = () => app.showEvent(item.ask.session, item.ask.id);
    item.parts.open.addEventListener("click", show);
    list.append(item);
  }
  decided.forEach((ask, place) => {
    const item = list.children[place];
    const { tool, prompt, when, came } = item.parts;
    const isDenied = ask.state === "answered" && isDeny(ask.answer.option);
    item.ask = ask;
    put(tool, ask.tool);
    put(prompt, line(ask.prompt));
    put(when, clock(ask.endedAt));
    put(came, app.inbox.outcome(ask));
    mark(item, "state", isDenied ? "denied" : ask.state);
  });
}
