// <nest-image src="photo.nest" budget="auto" alt="…">: an image that sharpens as its stream arrives.
//
// docs/how-to/browser.md has its attributes and events.
import { DamagedFile, InvalidInput, NestStream, toImageData } from "./nest.js";

export * from "./nest.js";

const NEAR = "500px"; // from the viewport, where lazy images begin to load
// Of the width on the screen that is loaded for, by the kind of connection.
const SHARES = { "slow-2g": 0.5, "2g": 0.5, "3g": 0.7 };
const STYLE = `
  :host { display: inline-block; max-width: 100%; vertical-align: bottom }
  :host([hidden]) { display: none }
  canvas { display: block; width: 100%; height: auto }
  span { display: block; overflow-wrap: anywhere }
  [hidden] { display: none }
`;

export class NestImage extends HTMLElement {
  static observedAttributes = ["src", "budget", "name", "alt", "width", "height", "loading", "poster"];

  /** The error that ended loading, or null. */
  error = null;
  #canvas = document.createElement("canvas");
  #alt = document.createElement("span");
  #size = document.createElement("style");
  #stream = null; // a promise
  #turn = 0; // the latest change ends what earlier ones began
  #near = null; // resolves when a lazy element is near the viewport
  #drawn = false; // whether the canvas shows the image of these attributes
  #shown = 0; // pixels of the screen: the width that was loaded for
  #watching = new ResizeObserver(() => {
    if (this.getAttribute("budget") === "auto" && this.#shown && this.#wanted() > this.#shown) this.#show();
  });

  constructor() {
    super();
    const style = document.createElement("style");
    style.textContent = STYLE;
    this.#canvas.width = this.#canvas.height = 0;
    this.#alt.part = "alt";
    this.#alt.hidden = true;
    this.attachShadow({ mode: "open" }).append(style, this.#size, this.#canvas, this.#alt);
  }

  connectedCallback() {
    this.#describe();
    this.#watching.observe(this);
    this.#show();
  }

  disconnectedCallback() {
    ++this.#turn;
    this.#watching.disconnect();
    this.#near?.end();
    this.#near = null;
    this.#close();
  }

  attributeChangedCallback(attribute, before, after) {
    if (before === after && attribute !== "src") return; // the same src loads again
    if (attribute === "alt") return this.#describe();
    if (attribute === "width" || attribute === "height") return this.#reserve();
    if (attribute === "src" || attribute === "poster") this.#close();
    if (attribute !== "budget" && attribute !== "loading") this.#drawn = false;
    if (this.isConnected) this.#show();
  }

  /** Tell assistive technology what the image shows: nothing if `alt` is empty, as of `<img>`. */
  #describe() {
    const alt = this.getAttribute("alt");
    this.#alt.textContent = alt ?? "";
    this.setAttribute("role", alt === "" ? "presentation" : "img");
    if (alt) this.setAttribute("aria-label", alt);
    else this.removeAttribute("aria-label");
  }

  /** Keep room for the image before it arrives; rules of the page have precedence over those of :host. */
  #reserve() {
    const [width, height] = ["width", "height"].map((side) => Number(this.getAttribute(side)));
    const rules = width > 0 ? [`:host { width: ${width}px }`] : [];
    if (width > 0 && height > 0) rules.push(`canvas { aspect-ratio: ${width} / ${height} }`);
    this.#size.textContent = rules.join(" ");
  }

  #close() {
    this.#stream?.then((stream) => stream.close()).catch(() => {});
    this.#stream = null;
    this.#shown = 0;
  }

  async #show() {
    const turn = ++this.#turn;
    await null; // several attributes that change together are one change
    if (turn !== this.#turn || !this.hasAttribute("src")) return;
    this.error = null;
    try {
      for await (const frame of this.#frames(turn)) {
        if (turn !== this.#turn) return;
        this.#draw(frame);
      }
      if (turn === this.#turn) this.dispatchEvent(new Event("load"));
    } catch (error) {
      if (turn !== this.#turn) return;
      this.error = error;
      this.#close();
      this.#alt.hidden = this.#drawn;
      this.#canvas.hidden = !this.#drawn;
      this.dispatchEvent(new CustomEvent("error", { detail: error }));
    }
  }

  async *#frames(turn) {
    const source = this.getAttribute("src"), budget = this.getAttribute("budget");
    const poster = this.#stream ? null : posterOf(this.getAttribute("poster"));
    if (!source) throw new InvalidInput("src must be the address of a stream of images, it is empty: give one");
    const open = (start) => (this.#stream ??= NestStream.open(source, { start }));
    if (poster) yield* (await open(poster)).images({ bytes: poster.length });
    if (this.getAttribute("loading") === "lazy") await (this.#near ??= nearViewport(this));
    if (turn !== this.#turn) return;
    try {
      yield* this.#budgeted(await open(null), budget);
    } catch (error) {
      if (!poster || !(error instanceof DamagedFile) || turn !== this.#turn) throw error;
      this.#close(); // the poster may be of an earlier version of the file
      yield* this.#budgeted(await open(null), budget);
    }
  }

  async *#budgeted(stream, budget) {
    if (budget !== "auto") return yield* stream.images({ bytes: budget === null ? Infinity : Number(budget) });
    if (!this.#drawn) {
      yield* stream.images({ width: 0 }); // the width on the screen may follow from that of the image
    }
    this.#shown = this.#wanted();
    yield* stream.images({ width: this.#shown });
  }

  /** Return the width to load for, in pixels of the screen: a smaller one if the connection is slow. */
  #wanted() {
    const { saveData, effectiveType } = navigator.connection ?? {};
    const share = saveData ? SHARES["2g"] : (SHARES[effectiveType] ?? 1);
    return share * devicePixelRatio * this.getBoundingClientRect().width;
  }

  #draw({ bytes, total, complete, images }) {
    const name = this.getAttribute("name");
    const image = name === null ? images[0] : images.find((one) => one.name === name);
    if (!image)
      throw new InvalidInput(
        name === null
          ? "the stream has no image: give another one"
          : `there is no image ${name} among ${images.length}: give another name`,
      );
    this.#alt.hidden = true;
    this.#canvas.hidden = false;
    this.#drawn = true;
    [this.#canvas.width, this.#canvas.height] = [image.width, image.height];
    this.#canvas.getContext("2d").putImageData(toImageData(image), 0, 0);
    this.dispatchEvent(new CustomEvent("frame", { detail: { bytes, total, complete, image } }));
  }
}

/** Return the bytes of a poster, or null. */
function posterOf(text) {
  if (!text) return null;
  try {
    return Uint8Array.from(atob(text.slice(text.indexOf(",") + 1)), (letter) => letter.charCodeAt(0));
  } catch {
    throw new InvalidInput("poster must be the first bytes of the stream in base64: encode them, or leave it out");
  }
}

/** Return a promise that resolves when an element is near the viewport, or `end` is called. */
function nearViewport(element) {
  let observer;
  const promise = new Promise((resolve) => {
    observer = new IntersectionObserver(([entry]) => entry.isIntersecting && (observer.disconnect(), resolve()), {
      rootMargin: NEAR,
    });
    observer.observe(element);
  });
  return Object.assign(promise, { end: () => observer.disconnect() });
}

customElements.define("nest-image", NestImage);
