/**
 * Elements, made of text alone: nothing that came from outside is ever read as markup.
 */

/**
 * Make an element.
 * @param {string} tag
 * @param {Record<string, unknown>} [attributes] `class`, `onclick` and the like, or attributes;
 *   one that is false or null is left out
 * @param {...(Node|string)} children strings become text
 * @returns {HTMLElement}
 */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children);
  return node;
}

/** @param {string} id @returns {HTMLElement} */
export const byId = (id) => document.getElementById(id);

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
