/**
 * Elements, made of the page's templates and of text: nothing that came from outside is ever read
 * as markup.
 */

/** @param {string} id @returns {HTMLElement} */
export const byId = (id) => document.getElementById(id);

/**
 * A copy of a template of the page.
 * @param {string} id
 * @returns {HTMLElement & {parts: Record<string, HTMLElement>}} with what has a `data-part` by name
 */
export function stamp(id) {
  const node = byId(id).content.firstElementChild.cloneNode(true);
  const named = [...node.querySelectorAll("[data-part]")].map((one) => [one.dataset.part, one]);
  return Object.assign(node, { parts: Object.fromEntries(named) });
}

/** An element with a text. */
export function make(tag, text) {
  const node = document.createElement(tag);
  node.textContent = text;
  return node;
}

/** Set the text of an element, where it is another one. */
export function put(node, text) {
  if (node.shown === text) return;
  node.shown = text;
  node.textContent = text;
}

/** Set a `data-` attribute, where it is another one. */
export function mark(node, name, value) {
  if (node.dataset[name] !== value) node.dataset[name] = value;
}

/** Set an attribute, where it is another one; null takes it away. */
export function attr(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}
