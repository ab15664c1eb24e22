/**
 * A list of which only the rows in sight are there: as fast with a thousand as with ten.
 *
 * Rows have one height. Those in sight stay where they are while others come and go above them; a
 * list that follows stays at its end.
 */

const SPARE = 4;

export class Rows {
  #pool = [];
  #items = [];
  #anchor = null;

  /**
   * @param {HTMLElement} scroller
   * @param {object} how
   * @param {number} how.height of a row, in px
   * @param {() => HTMLElement} how.make an empty row
   * @param {(row: HTMLElement, item: any, index: number) => void} how.fill
   * @param {(item: any) => unknown} how.key tells items apart
   * @param {boolean} [how.follows] whether it stays at its end
   * @param {() => void} how.moved told that it was scrolled
   */
  constructor(scroller, how) {
    this.scroller = scroller;
    this.how = how;
    this.follows = how.follows ?? false;
    this.space = scroller.firstElementChild;
    scroller.addEventListener("scroll", () => {
      if (this.how.follows) this.follows = this.isAtEnd;
      this.#anchor = this.#find();
      how.moved();
    });
  }

  /** Show these items. */
  render(items) {
    const { height, key } = this.how;
    const { scroller } = this;
    this.#items = items;
    this.space.style.height = `${items.length * height}px`;
    const seen = scroller.clientHeight;
    if (!seen) return;
    if (this.follows) scroller.scrollTop = items.length * height;
    else if (this.#anchor && this.how.follows)
      this.#hold(items.findIndex((one) => key(one) === this.#anchor.key));
    const first = Math.max(0, Math.floor(scroller.scrollTop / height) - SPARE);
    const last = Math.min(items.length, Math.ceil((scroller.scrollTop + seen) / height) + SPARE);
    this.#resize(Math.ceil(seen / height) + 2 * SPARE + 1);
    const used = new Set();
    for (let index = first; index < last; index++) {
      const row = this.#pool[index % this.#pool.length];
      used.add(row);
      row.hidden = false;
      row.style.transform = `translateY(${index * height}px)`;
      this.how.fill(row, items[index], index);
    }
    for (const row of this.#pool) if (!used.has(row)) row.hidden = true;
  }

  /** Bring an item into sight. */
  show(index) {
    const { height } = this.how;
    const { scroller } = this;
    const top = index * height;
    const seen = scroller.clientHeight;
    this.space.style.height = `${this.#items.length * height}px`;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (top + height > scroller.scrollTop + seen) scroller.scrollTop = top + height - seen;
    this.#anchor = this.#find();
  }

  /** Go to the beginning, or to the end and stay there. */
  jump(toEnd) {
    this.follows = toEnd && (this.how.follows ?? false);
    this.scroller.scrollTop = toEnd ? this.#items.length * this.how.height : 0;
    this.#anchor = null;
  }

  /** Whether the last item is in sight. */
  get isAtEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.scroller;
    return scrollTop + clientHeight >= scrollHeight - this.how.height;
  }

  #find() {
    const { height, key } = this.how;
    const { scrollTop } = this.scroller;
    const index = Math.floor(scrollTop / height);
    const item = this.#items[index];
    return item ? { key: key(item), offset: scrollTop - index * height } : null;
  }

  #hold(index) {
    if (index < 0) return;
    const top = index * this.how.height + this.#anchor.offset;
    if (Math.abs(this.scroller.scrollTop - top) > 1) this.scroller.scrollTop = top;
  }

  #resize(count) {
    while (this.#pool.length < count) {
      const row = this.how.make();
      this.#pool.push(row);
      this.space.append(row);
    }
  }
}
