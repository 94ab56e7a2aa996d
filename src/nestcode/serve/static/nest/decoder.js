// The progressive decoder of image streams: header, checksums and passes here, pixels in WebAssembly (nest.wasm).
//
// The twin of nestcode.images.ImageStreamDecoder: the same pixels, bit for bit, and the same errors; but of
// lossless streams it shows the lossy preview, without the residuals. docs/format.md documents the format.

const MAGIC = "\x89NESP\r\n\x1a", ITEMS_MAGIC = "\x89NEST\r\n\x1a";
const FIXED = 60, CRC = 4, BLOCK = 4096, PASSES = 45, VERSION = 5;
const LOSSY_VERSION = 4; // later ones have one more pass, of residuals
const MAX_TABLE = 2 ** 24, MAX_PLANES = 15, MAX_NAME = 1000;
const COEFFICIENT = 6n, STRIPS = 20n, MODEL = 2n ** 20n; // bytes of memory, as nestcode.images.stream counts them
const SHOWN_BPP = 1; // bits of payload per pixel of an image that is shown at its own width
const KIND = "PictureCoder", CODEC_VERSION = 2; // of a codec in files

export class InvalidInput extends Error {
  name = "InvalidInput";
}
export class DamagedFile extends Error {
  name = "DamagedFile";
}

/** Read a file that lies beside this one, or in a page that has everything in it. */
async function load(name) {
  if (globalThis.nestFiles) return globalThis.nestFiles[name];
  const url = new URL(name, import.meta.url);
  if (url.protocol === "file:") return (await import("node:fs/promises")).readFile(url);
  const response = await fetch(url);
  if (!response.ok) throw new InvalidInput(`${url} must be served beside nest.js, got status ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

let started; // the WebAssembly module, once for all streams
const core = () =>
  (started ??= load("nest.wasm").then(async (bytes) => {
    const refuse = () => 52; // ENOSYS: the module writes only when it aborts
    const system = { fd_close: refuse, fd_seek: refuse, fd_write: refuse };
    const { instance } = await WebAssembly.instantiate(bytes, { wasi_snapshot_preview1: system });
    instance.exports._initialize();
    return instance.exports;
  }));

/** Copy bytes into the memory of the module for the time of a call. */
function lend(wasm, bytes, call) {
  const at = wasm.allocate(bytes.length);
  new Uint8Array(wasm.memory.buffer, at, bytes.length).set(bytes);
  try {
    return call(at);
  } finally {
    wasm.release(at);
  }
}

/** Return an image as the ImageData that canvases draw. */
export function toImageData({ width, height, channels, pixels }) {
  const data = new Uint8ClampedArray(4 * width * height).fill(255);
  const colors = channels < 3 ? [0, 0, 0] : [0, 1, 2];
  for (let from = 0, to = 0; from < pixels.length; from += channels, to += 4) {
    for (let i = 0; i < 3; ++i) data[to + i] = pixels[from + colors[i]];
    if (channels % 2 === 0) data[to + 3] = pixels[from + channels - 1];
  }
  return new ImageData(data, width, height);
}

/** A fitted codec: the context model that images start from. */
export class Codec {
  /** Return the codec in the bytes of a file that ImageCodec.save wrote. */
  static async parse(bytes, source = "the codec") {
    const { metadata, arrays } = parseSafetensors(bytes, source);
    if ((await fingerprintOf(metadata, arrays)) !== metadata.sha256)
      throw new DamagedFile(`${source} is damaged, its checksum does not match: save it again or restore a copy`);
    return Codec.make(await core(), metadata, arrays, source);
  }

  /** Return a codec that ships with Nestcode: "photos", or "photos-1" of streams up to version 3. */
  static shipped(name) {
    const source = `${name}.coder.z`;
    return (Codec.loaded[name] ??= Promise.all([core(), load(source).then(inflate)]).then(([wasm, bytes]) => {
      const { metadata, arrays } = parseSafetensors(bytes, source);
      return Codec.make(wasm, metadata, arrays, source);
    }));
  }
  static loaded = {};

  static make(wasm, metadata, arrays, source) {
    if (metadata.kind !== KIND) throw new InvalidInput(`${source} must hold an image codec, got a ${metadata.kind}`);
    if (!(metadata.version <= CODEC_VERSION))
      throw new DamagedFile(
        `${source} has version ${metadata.version} of the ${KIND} layout, this nestcode reads up to ${CODEC_VERSION}: ` +
          "upgrade nestcode",
      );
    const mixing = metadata.version === "1", contexts = mixing ? wasm.mixing_model_contexts() : 0;
    const raw = (mixing ? ["chances", "seen", "weights"] : ["weights"])
      .map((name) => arrays.get(name)?.bytes ?? new Uint8Array());
    const { step } = JSON.parse(metadata.settings);
    const sizes = mixing ? [2 * contexts, contexts, 4 * wasm.mixing_model_weights()] : [2 * wasm.model_weights()];
    const known = metadata.version >= 1 && raw.every(({ length }, i) => length === sizes[i]);
    if (!known || !(step >= 1 && step <= 1000))
      throw new DamagedFile(`${source} is not a ${KIND} as it should be: restore a copy`);
    const model = lend(wasm, concatenate(raw), (at) =>
      mixing ? wasm.make_mixing_model(at, at + sizes[0], at + sizes[0] + sizes[1]) : wasm.make_model(at),
    );
    return Object.assign(new Codec(), { wasm, model, step, fingerprint: metadata.sha256 });
  }
}

function parseSafetensors(bytes, source) {
  try {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const end = 8 + Number(view.getBigUint64(0, true));
    const { __metadata__: metadata, ...tensors } = JSON.parse(new TextDecoder().decode(bytes.subarray(8, end)));
    const arrays = new Map(
      Object.keys(tensors).sort().map((name) => {
        const { dtype, shape, data_offsets: [begin, stop] } = tensors[name];
        return [name, { dtype, shape, bytes: bytes.slice(end + begin, end + stop) }];
      }),
    );
    if (metadata.format !== "nestcode") throw new TypeError("not by Nestcode");
    return { metadata, arrays };
  } catch {
    throw new DamagedFile(`${source} is damaged or not a Nestcode file: save it again or restore a copy`);
  }
}

/** Return the SHA-256 of kind, version, settings and arrays, as nestcode.storage.Record has it. */
async function fingerprintOf(metadata, arrays) {
  if (!globalThis.crypto?.subtle)
    throw new InvalidInput("an embedded codec is verified by crypto.subtle: serve the page by HTTPS or from localhost");
  const types = { U16: "<u2", U8: "|u1", I16: "<i2", I32: "<i4" };
  const text = new TextEncoder();
  const parts = [text.encode(`${metadata.kind}\n${metadata.version}\n${metadata.settings}\n`)];
  for (const [name, { dtype, shape, bytes }] of arrays)
    parts.push(text.encode(`${name} ${types[dtype] ?? dtype} (${shape.join(", ")}${shape.length === 1 ? "," : ""})\n`), bytes);
  return hex(new Uint8Array(await crypto.subtle.digest("SHA-256", concatenate(parts))));
}

/** Decodes a stream of images as it arrives, in chunks of any size. */
export class ImageStreamDecoder {
  fed = 0;
  header = null;
  #start = new Uint8Array();
  #refused = null;
  #arrival = null;

  constructor({ codec = null, limit = 2 ** 31 } = {}) {
    Object.assign(this, { codec, limit });
  }

  /** Take the next bytes. A damaged block is thrown; what precedes it stays decoded. */
  async feed(chunk) {
    if (this.#refused) throw this.#refused;
    this.fed += chunk.length;
    try {
      if (!this.#arrival) {
        this.#start = concatenate([this.#start, chunk]);
        const header = await parseHeader(this.#start, this.limit);
        if (!header) return;
        checkMemory(header.entries, this.limit);
        const codec = await findCodec(header, this.#start, this.codec);
        chunk = this.#start.subarray(header.size);
        [this.header, this.#arrival, this.#start] = [header, new Arrival(header, codec), null];
      }
      this.#arrival.feed(chunk);
    } catch (error) {
      throw (this.#refused = error);
    }
  }

  /** Whether all blocks arrived. */
  get complete() {
    return this.#payload().complete;
  }

  /** Return all images, each decoded from the bits of it that arrived. */
  images() {
    return this.#payload().images();
  }

  /** Free the memory of the decoder. */
  close() {
    this.#arrival?.close();
    this.#refused = new InvalidInput("the decoder is closed: make another one");
    this.#arrival = null;
  }

  #payload() {
    if (this.#arrival) return this.#arrival;
    throw (
      this.#refused ??
      new InvalidInput(`the stream's header is not complete after ${this.fed} bytes: feed more of it first`)
    );
  }
}

/** A payload that arrives in chunks, verified and decoded on the way. */
class Arrival {
  bits = 0;
  #number = 0;
  #got = 0;
  #checksum = [];
  #damaged = null;
  #verified = 0; // bytes
  #intact = []; // chunks of the payload so far, to decode again what precedes a damaged block

  constructor(header, codec) {
    Object.assign(this, { header, codec });
    this.#reset();
    this.crc = this.#seed(0);
  }

  #reset() {
    this.close();
    const { make_decoder } = this.codec.wasm;
    this.decoders = this.header.entries.map(({ shape: [height, width, channels = 1] }) =>
      make_decoder(this.codec.model, this.codec.step, height, width, channels),
    );
    this.decoded = this.decoders.map(() => null);
    this.begun = []; // images of which a byte arrived
    this.#intact = [];
    [this.pass, this.image, this.left] = [0, -1, 0];
  }

  close() {
    this.decoders?.forEach(this.codec.wasm.release_decoder);
    this.decoders = [];
  }

  get blocks() {
    return Math.ceil(this.header.payload / BLOCK);
  }
  get complete() {
    return this.#number === this.blocks;
  }

  feed(chunk) {
    if (this.#damaged) throw this.#damaged;
    while (chunk.length) {
      if (this.complete)
        throw new DamagedFile(
          `${chunk.length} bytes follow the end of the stream: restore a copy, or give the stream alone`,
        );
      const missing = Math.min(BLOCK, this.header.payload - BLOCK * this.#number) - this.#got;
      if (missing) {
        const piece = chunk.subarray(0, missing);
        this.#store(piece);
        this.crc = crc32(piece, this.crc);
        this.#got += piece.length;
        this.bits += 8 * piece.length;
        chunk = chunk.subarray(piece.length);
      } else {
        this.#checksum.push(chunk[0]);
        chunk = chunk.subarray(1);
        if (this.#checksum.length === CRC) this.#endBlock();
      }
    }
  }

  #seed(number) {
    const start = new Uint8Array(12);
    new DataView(start.buffer).setBigUint64(0, BigInt(number), true);
    start.set(this.header.checksum, 8);
    return crc32(start);
  }

  #endBlock() {
    if (this.#checksum.some((byte, i) => byte !== ((this.crc >>> (8 * i)) & 0xff))) {
      const intact = concatenate(this.#intact).subarray(0, this.#verified);
      this.#reset();
      this.#store(intact);
      this.bits = 8 * this.#verified;
      this.#damaged = new DamagedFile(
        `block ${this.#number} of ${this.blocks} does not match its checksum, ${summary(this.header, this.bits)} before ` +
          'it are intact: restore a copy, or decode the intact part with on_damage="keep"',
      );
      throw this.#damaged;
    }
    this.#verified += this.#got;
    [this.#number, this.#got, this.#checksum] = [this.#number + 1, 0, []];
    this.crc = this.#seed(this.#number);
  }

  /** Give bytes of the payload to the decoders of the images that they belong to. */
  #store(piece) {
    this.#intact.push(piece.slice());
    const { entries } = this.header;
    const { wasm } = this.codec;
    while (piece.length) {
      while (this.left === 0) {
        if (++this.image === entries.length) [this.pass, this.image] = [this.pass + 1, 0];
        this.left = entries[this.image].sizes[this.pass];
      }
      const part = piece.subarray(0, this.left);
      this.left -= part.length;
      piece = piece.subarray(part.length);
      if (this.pass === PASSES) continue; // residuals: what is shown is the preview before them
      if (!this.begun[this.image] && part[0] & this.header.unknown)
        throw new DamagedFile(
          `an image of this stream's version begins with no flags ${this.header.unknown}, got the byte ${part[0]}: ` +
            "restore a copy",
        );
      this.begun[this.image] = true;
      const planes = lend(wasm, part, (at) => wasm.feed(this.decoders[this.image], at, part.length));
      if (planes)
        throw new DamagedFile(`an image has at most ${MAX_PLANES} bit planes, got ${planes}: send it again`);
      this.decoded[this.image] = null;
    }
  }

  images() {
    const { wasm } = this.codec;
    return this.header.entries.map(({ name, shape: [height, width, channels = 1] }, i) => {
      if (!this.decoded[i]) {
        const size = height * width * channels;
        const at = wasm.allocate(size);
        wasm.write(this.decoders[i], at);
        this.decoded[i] = new Uint8Array(wasm.memory.buffer, at, size).slice();
        wasm.release(at);
      }
      return { name, height, width, channels, pixels: this.decoded[i].slice() };
    });
  }
}

/** Return the verified header, or null while it is not complete. */
async function parseHeader(data, limit) {
  const start = latin(data.subarray(0, 8));
  if (start === ITEMS_MAGIC)
    throw new InvalidInput("this is a stream of items and not of images: give it to decompress or StreamReader");
  if (start !== MAGIC.slice(0, start.length))
    throw new DamagedFile("this is not a stream of images: give a stream of compress_images or ImageStreamWriter");
  if (data.length < FIXED) return null;
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  const [version, size, embedded] = [8, 12, 16].map((at) => view.getUint32(at, true));
  const payload = view.getBigUint64(20, true);
  if (version < 1 || version > VERSION)
    throw new DamagedFile(
      `the stream has version ${version}, this nestcode reads versions 1 to ${VERSION}: upgrade nestcode`,
    );
  if (size > MAX_TABLE)
    throw new DamagedFile(`the stream's table claims ${size} bytes, the maximum is ${MAX_TABLE}: restore a copy`);
  const end = FIXED + size;
  if (data.length < end + CRC) return wait(end + CRC, limit);
  if (crc32(data.subarray(0, end)) !== view.getUint32(end, true))
    throw new DamagedFile("the stream's header is damaged, its checksum does not match: restore a copy");
  const entries = await parseTable(data.subarray(FIXED, end), version);
  const sum = entries.reduce((total, { sizes }) => sizes.reduce((a, b) => a + BigInt(b), total), 0n);
  if (payload !== sum)
    throw new DamagedFile(`the stream's table does not sum to ${payload} bytes of payload: restore a copy`);
  const total = Number(payload) + CRC * Math.ceil(Number(payload) / BLOCK) + end + CRC + embedded;
  const header = { entries, embedded, total, payload: Number(payload), size: end + CRC + embedded };
  header.unknown = version < 3 ? 0x60 : 0; // flags of an image's first byte that came later
  header.coder = hex(data.subarray(28, FIXED));
  header.checksum = data.slice(end, end + CRC);
  return data.length < header.size ? wait(header.size, limit) : header;
}

function wait(needed, limit) {
  if (needed <= limit) return null;
  throw new InvalidInput(`the header takes ${needed} bytes, more than the limit of ${limit}: give a larger limit`);
}

/** Return names, shapes and sizes of passes of the images; no value is used before it is checked. */
async function parseTable(table, version) {
  const check = (condition, reason) => {
    if (!condition) throw new DamagedFile(`the stream's table is invalid (${reason}): restore a copy`);
  };
  let parsed;
  try {
    // Numbers that are not written as integers become null, which no check below lets pass.
    const odd = /"(?:[^"\\]|\\.)*"|-?\d+[.eE][\d.eE+-]*|-?Infinity|NaN/g;
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(await inflate(table));
    parsed = JSON.parse(text.replace(odd, (part) => (part[0] === '"' ? part : "null")));
  } catch {
    check(false, `it is not JSON, deflated, of at most ${MAX_TABLE} bytes`);
  }
  const lists = (values, count) => Array.isArray(values) && values.length === count && values.every(Array.isArray);
  const integer = (value, low, high) => Number.isInteger(value) && value >= low && value < high;
  check(lists(parsed, version === 1 ? 2 : 3), "it is not a list of images and a list of qualities");
  const [rows, quality] = parsed;
  const passes = PASSES + (version > LOSSY_VERSION);
  const sound = quality.length === passes && quality.every((value) => integer(value, -9999, 10000));
  check(sound, "qualities are not one for each pass");
  for (const row of rows) {
    const whole = Array.isArray(row) && row.length === (version === 1 ? 3 : 5) && lists(row.slice(1, 3), 2);
    check(whole, "an image is a name, a shape and the sizes of its passes");
    const [name, shape, sizes, depth = 8] = row;
    const counted = sizes.length === passes && sizes.every((size) => integer(size, 0, 2 ** 40));
    check(counted, "the sizes of an image are not one for each pass");
    const sides = shape.length > 1 && shape.length < 4 && shape.every((side) => integer(side, 1, 2 ** 31));
    check(sides && (shape[2] ?? 1) <= 4, "a shape is not that of an image");
    check(depth === 8 || depth === 16, "a depth is neither 8 nor 16");
    check(isName(name), "a name is not a relative path");
  }
  const names = new Set(rows.map(([name]) => name));
  check(names.size === rows.length, "two images have the same name");
  return rows.map(([name, shape, sizes]) => ({ name, shape, sizes }));
}

function isName(name) {
  if (typeof name !== "string" || /[\\\p{Cc}\p{Cs}]/u.test(name) || name.startsWith("/")) return false;
  const parts = name.split("/").filter((part) => part && part !== ".");
  return parts.length > 0 && !parts.includes("..") && [...parts.join("/")].length <= MAX_NAME;
}

function checkMemory(entries, limit) {
  let most = 0n, strips = 0n;
  for (const { shape: [height, width, channels = 1] } of entries) {
    const strip = BigInt(Math.ceil(width / 16)) * 256n * BigInt(channels);
    most += (2n + COEFFICIENT) * strip * BigInt(Math.ceil(height / 16)) + MODEL;
    if (STRIPS * strip > strips) strips = STRIPS * strip;
  }
  if (most + strips > BigInt(limit))
    throw new InvalidInput(
      `the stream's ${entries.length} images take ${most + strips} bytes of memory, more than the limit of ${limit}: ` +
        "give a larger limit, or read them one by one with ImageStreamReader",
    );
}

async function findCodec(header, data, given) {
  const madeBy = `the stream was made by an ImageCodec with fingerprint ${header.coder}`;
  if (given) {
    if (given.fingerprint !== header.coder)
      throw new InvalidInput(`${madeBy}, the given codec has ${given.fingerprint}: give the codec that made it`);
    return given;
  }
  if (header.embedded) {
    const bytes = data.subarray(header.size - header.embedded, header.size);
    const codec = await Codec.parse(bytes, "the codec in the stream");
    if (codec.fingerprint !== header.coder)
      throw new DamagedFile(`${madeBy}, but another is embedded: restore a copy`);
    return codec;
  }
  for (const name of ["photos", "photos-1"]) {
    const codec = await Codec.shipped(name);
    if (codec.fingerprint === header.coder) return codec;
  }
  throw new InvalidInput(`${madeBy}, which is neither embedded nor shipped with Nestcode: give the codec`);
}

/** Return how many bytes of a stream images need that are shown at a width, in pixels of the screen. */
export function bytesForWidth({ entries, size, payload, total }, width) {
  const bits = entries.reduce((sum, { shape: [height, own] }) => {
    const share = Math.min(1, width / own);
    return sum + height * own * share * Math.sqrt(share);
  }, 0);
  const wanted = Math.min(payload, Math.ceil((SHOWN_BPP * bits) / 8));
  return wanted === payload ? total : size + wanted + CRC * Math.floor(wanted / BLOCK);
}

function summary({ entries }, bits) {
  const pixels = entries.reduce((sum, { shape }) => sum + shape[0] * shape[1], 0);
  return `${general(bits / Math.max(pixels, 1))} bpp of all ${entries.length} images`;
}

/** Format a number as Python's .3g does. */
function general(value) {
  if (value === 0) return "0";
  const [digits, exponent] = value.toExponential(2).split("e");
  if (exponent >= -4 && exponent < 3) return String(Number(value.toPrecision(3)));
  const sign = exponent < 0 ? "-" : "+";
  return `${Number(digits)}e${sign}${String(Math.abs(exponent)).padStart(2, "0")}`;
}

async function inflate(bytes, most = MAX_TABLE) {
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate")).getReader();
  const chunks = [];
  for (let size = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) return concatenate(chunks);
    chunks.push(value);
    size += value.length;
    if (size > most) {
      await reader.cancel();
      throw new RangeError("inflates beyond its maximum");
    }
  }
}

function concatenate(chunks) {
  const out = new Uint8Array(chunks.reduce((size, chunk) => size + chunk.length, 0));
  let at = 0;
  for (const chunk of chunks) {
    out.set(chunk, at);
    at += chunk.length;
  }
  return out;
}

const latin = (bytes) => String.fromCharCode(...bytes);
const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let i = 0; i < 8; ++i) byte = byte & 1 ? (byte >>> 1) ^ 0xedb88320 : byte >>> 1;
  return byte;
});

function crc32(bytes, crc = 0) {
  crc = ~crc;
  for (const byte of bytes) crc = CRC_TABLE[(crc ^ byte) & 0xff] ^ (crc >>> 8);
  return ~crc >>> 0;
}
