// Streams of images in a browser or in Node: `NestStream`.
import { DamagedFile, InvalidInput, toImageData } from "./decoder.js";
import { LocalStream } from "./stream.js";

export { DamagedFile, InvalidInput, toImageData };

const ERRORS = { DamagedFile, InvalidInput };
const pending = new Map();
let worker = null;
let next = 0;

/** Call the worker that all streams of a page share. */
function call(name, stream, ...args) {
  if (!worker) {
    worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
    worker.onmessage = ({ data: { id, result, error } }) => {
      const { resolve, reject } = pending.get(id);
      pending.delete(id);
      if (error) reject(Object.assign(new (ERRORS[error.name] ?? Error)(error.message), { name: error.name }));
      else resolve(result);
    };
    worker.onerror = (event) => {
      const failed = [...pending.values()];
      pending.clear();
      for (const { reject } of failed) reject(new Error(event.message || "the worker of nest.js could not be started"));
    };
  }
  return new Promise((resolve, reject) => {
    pending.set(++next, { resolve, reject });
    worker.postMessage({ id: next, call: name, stream, args });
  });
}

/** A stream of images, decoded in a worker where there are workers. */
export class NestStream {
  #local;
  #id;

  /** Open a stream at an address, or in memory. */
  static async open(source, options = {}) {
    const stream = new NestStream();
    if (typeof source === "string" || source instanceof URL)
      source = new URL(source, globalThis.document?.baseURI).href;
    if (source instanceof Blob) source = await source.arrayBuffer();
    if (typeof Worker === "undefined") {
      stream.#local = await LocalStream.open(source, options);
    } else {
      stream.#id = ++next;
      await call("open", stream.#id, source, options);
    }
    return stream;
  }

  /** Yield all images while more of the stream arrives, until `bytes` of it, or those that `width` needs, are decoded. */
  async *images(options = {}) {
    if (this.#local) return yield* this.#local.images(options);
    const iteration = ++next;
    await call("images", this.#id, iteration, options);
    try {
      for (;;) {
        const { done, value } = await call("next", this.#id, iteration);
        if (done) return;
        yield value;
      }
    } finally {
      await call("end", this.#id, iteration);
    }
  }

  /** Stop reading and free the memory of the decoder. */
  async close() {
    await (this.#local ? this.#local.close() : call("close", this.#id));
  }
}
