// A stream of images at an address or in memory, decoded where this file runs: in a worker of a page, or in Node.
import { Codec, ImageStreamDecoder, InvalidInput, bytesForWidth } from "./decoder.js";

const FIRST_BYTES = 4096; // requested while the header, and so the number of bytes to request, is not known
const GROWTH = 1.1; // of the bytes from one frame to the next: a frame takes as long however little arrived

export class LocalStream {
  #source;
  #options;
  #decoder;
  #received = new Uint8Array(2 ** 16); // with room for more
  #size = 0; // bytes received
  #ended = false;
  #reader = null; // of a response whose body has not been read to its end
  #turn = 0; // the latest call of images ends the earlier ones
  #step = Promise.resolve();

  static async open(source, { codec, start, ...options } = {}) {
    const stream = new LocalStream();
    if (start) stream.#append(start);
    stream.#source = source instanceof ArrayBuffer ? new Uint8Array(source) : source;
    stream.#options = { ...options, codec: codec ? await Codec.parse(codec) : null };
    stream.#decoder = new ImageStreamDecoder(stream.#options);
    if (stream.#source instanceof Uint8Array) {
      stream.#received = stream.#source;
      stream.#size = stream.#source.length;
      stream.#ended = true;
    }
    return stream;
  }

  /** Yield all images while more of the stream arrives, until `bytes` of it, or those that `width` needs, are decoded. */
  async *images({ bytes = Infinity, width = Infinity } = {}) {
    if (!(bytes >= 0)) throw new InvalidInput(`bytes must be a number of at least 0, got ${bytes}`);
    if (!(width >= 0)) throw new InvalidInput(`width must be a number of pixels of at least 0, got ${width}`);
    const turn = ++this.#turn;
    for (let first = true; ; first = false) {
      const step = this.#step.then(() => this.#advance(turn, bytes, width, first)); // one at a time
      this.#step = step.catch(() => {});
      const { frame, error, ended } = await step;
      if (frame) yield frame;
      if (error) throw error;
      if (ended) return;
    }
  }

  /** Return how many bytes to decode: as far as the header, and so the bytes that a width needs, are known. */
  #wanted(bytes, width) {
    const { fed, header } = this.#decoder;
    if (width === Infinity) return bytes;
    return Math.min(bytes, header ? Math.max(fed, bytesForWidth(header, width)) : Math.max(FIRST_BYTES, 2 * fed));
  }

  /** Decode what arrived, or read more; the first step has a frame even if nothing is new. */
  async #advance(turn, bytes, width, first) {
    if (turn !== this.#turn) return { ended: true };
    if (bytes < this.#decoder.fed) {
      this.#decoder.close();
      this.#decoder = new ImageStreamDecoder(this.#options);
    }
    const decoder = this.#decoder;
    const wanted = this.#wanted(bytes, width);
    const end = Math.min(wanted, this.#size);
    let error = null;
    if (decoder.fed < end && (this.#ended || end === wanted || end >= GROWTH * decoder.fed)) {
      await decoder.feed(this.#received.subarray(decoder.fed, end)).catch((refused) => (error = refused));
    } else if (!first || !decoder.header) {
      if (decoder.fed < wanted && !this.#ended) {
        await this.#fetch(wanted);
        return {};
      }
      if (!decoder.header) decoder.images(); // throws why there are none
      return { ended: true };
    }
    const { fed, header } = decoder;
    const frame = header && { bytes: fed, total: header.total, complete: decoder.complete, images: decoder.images() };
    return { frame, error };
  }

  /** Read more of the source: the next chunk. */
  async #fetch(bytes) {
    if (!this.#reader) {
      const last = bytes === Infinity ? "" : bytes - 1;
      const response = await fetch(this.#source, { headers: { Range: `bytes=${this.#size}-${last}` } });
      if (response.status === 416) {
        this.#ended = true;
        return;
      }
      if (!response.ok) throw new InvalidInput(`${this.#source} must be a stream of images, got status ${response.status}`);
      this.#reader = { body: response.body.getReader(), skip: response.status === 206 ? 0 : this.#size };
      const whole = response.status === 206 ? Number(response.headers.get("Content-Range")?.split("/")[1]) : 0;
      this.#reader.ends = response.status !== 206 || bytes === Infinity || whole <= bytes;
    }
    const { body } = this.#reader;
    const { done, value } = await body.read();
    if (done) {
      this.#ended = this.#reader.ends;
      this.#reader = null;
      return;
    }
    const chunk = value.subarray(Math.min(this.#reader.skip, value.length));
    this.#reader.skip -= value.length - chunk.length;
    this.#append(chunk);
    if (this.#size >= bytes) {
      // A server that ignores Range sends the whole file: stop reading.
      await body.cancel();
      this.#reader = null;
    }
  }

  #append(chunk) {
    if (this.#size + chunk.length > this.#received.length) {
      const larger = new Uint8Array(Math.max(2 * this.#received.length, this.#size + chunk.length));
      larger.set(this.#received.subarray(0, this.#size));
      this.#received = larger;
    }
    this.#received.set(chunk, this.#size);
    this.#size += chunk.length;
  }

  /** Stop reading and free the memory of the decoder. */
  async close() {
    ++this.#turn;
    await this.#reader?.body.cancel();
    this.#decoder.close();
  }
}
