/** One event as a whole: its attributes, its payload, and the events that it is tied to. */

import { byId, make, stamp } from "./dom.js";
import { block, dumped, kind, line } from "./words.js";

const LONGEST = 20_000;
const EFFECTS = 12;
const ELSEWHERE = ["aep", "type", "cause", "source"];

/**
 * Show an event; null: none.
 * @param {import("./model.js").Entry|null} entry
 * @param {import("./timeline.js").Timeline} timeline
 */
export function tell(entry, timeline) {
  const place = byId("detail");
  place.hidden = !entry;
  place.replaceChildren();
  if (!entry) return;
  const { data, ...rest } = entry.event;
  const detail = stamp("detail-template");
  const { type, close, links, facts, payload } = detail.parts;
  type.textContent = line(entry.event.type);
  close.addEventListener("click", () => timeline.select(null));
  links.append(...linked(entry.event, timeline));
  for (const [name, value] of Object.entries(rest)) {
    if (ELSEWHERE.includes(name)) continue;
    const fact = document.createElement("div");
    fact.append(make("dt", name), make("dd", line(value)));
    facts.append(fact);
  }
  const text = dumped(data ?? {}, 2);
  payload.textContent = block(text.slice(0, LONGEST)) + (text.length > LONGEST ? "\n... cut" : "");
  place.append(detail);
}

/** @returns {(Node|string)[]} ways to the event that caused one, and to those that it led to */
function linked(event, timeline) {
  const { session } = timeline;
  const effects = session.effects(event.id).map((one) => one.event.id);
  const to = (id, what) => {
    const found = session.known.get(id);
    const button = make("button", `${what} ${found ? kind(found.event.type) : line(id)}`);
    button.className = "link";
    button.disabled = !found;
    button.addEventListener("click", () => timeline.go(id));
    return button;
  };
  return [
    ...(event.cause ? [to(event.cause, "\u2196 caused by")] : []),
    ...effects.slice(0, EFFECTS).map((id) => to(id, "\u2198 led to")),
    ...(effects.length > EFFECTS ? [`and ${effects.length - EFFECTS} more`] : []),
  ];
}
