// <nest-image src="photo.nest" budget="20000" alt="…">: an image that sharpens as its stream arrives.
//
// Attributes: `src`, the address of a stream of images; `budget`, how many bytes of it to use, by default all; `name`, which
// of its images, by default the first; `alt`. Events: `frame` whenever more is shown, with `bytes`, `total`, `complete` and
// `image` in its detail; `load` when the budget is spent or the stream ends; `error`, with the error in its detail: what
// was decoded before it stays.
import { InvalidInput, NestStream, toImageData } from "./nest.js";

export * from "./nest.js";

export class NestImage extends HTMLElement {
  static observedAttributes = ["src", "budget", "name", "alt"];

  /** The error that ended loading, or null. */
  error = null;
  #canvas = document.createElement("canvas");
  #stream = null; // a promise
  #turn = 0; // the latest change ends what earlier ones began

  constructor() {
    super();
    const style = document.createElement("style");
    style.textContent =
      ":host { display: inline-block; max-width: 100% } canvas { display: block; max-width: 100%; height: auto }";
    this.#canvas.width = this.#canvas.height = 0;
    this.attachShadow({ mode: "open" }).append(style, this.#canvas);
  }

  connectedCallback() {
    if (!this.hasAttribute("role")) this.setAttribute("role", "img");
    this.#show();
  }

  disconnectedCallback() {
    ++this.#turn;
    this.#close();
  }

  attributeChangedCallback(attribute, before, after) {
    if (attribute === "alt") return this.setAttribute("aria-label", after ?? "");
    if (attribute === "src" && before !== after) this.#close();
    if (this.isConnected) this.#show();
  }

  #close() {
    this.#stream?.then((stream) => stream.close()).catch(() => {});
    this.#stream = null;
  }

  async #show() {
    const turn = ++this.#turn;
    await null; // several attributes that change together are one change
    const source = this.getAttribute("src");
    if (turn !== this.#turn || !source) return;
    this.error = null;
    try {
      const budget = this.getAttribute("budget");
      const bytes = budget === null ? Infinity : Number(budget);
      const stream = await (this.#stream ??= NestStream.open(source));
      if (turn !== this.#turn) return;
      for await (const frame of stream.images({ bytes })) {
        if (turn !== this.#turn) return;
        this.#draw(frame);
      }
      if (turn === this.#turn) this.dispatchEvent(new Event("load"));
    } catch (error) {
      if (turn !== this.#turn) return;
      this.error = error;
      this.dispatchEvent(new CustomEvent("error", { detail: error }));
    }
  }

  #draw({ bytes, total, complete, images }) {
    const name = this.getAttribute("name");
    const image = name === null ? images[0] : images.find((one) => one.name === name);
    if (!image) throw new InvalidInput(`there is no image ${name ?? ""} among ${images.length}: give another name`);
    [this.#canvas.width, this.#canvas.height] = [image.width, image.height];
    this.#canvas.getContext("2d").putImageData(toImageData(image), 0, 0);
    this.dispatchEvent(new CustomEvent("frame", { detail: { bytes, total, complete, image } }));
  }
}

customElements.define("nest-image", NestImage);
