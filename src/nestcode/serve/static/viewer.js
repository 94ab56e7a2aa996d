// The page of `nestcode images view -o page.html`: a stream of images, shown as its first bytes decode.
import { toImageData } from "./nest/decoder.js";
import { LocalStream } from "./nest/stream.js";

const at = (id) => document.getElementById(id);
const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
globalThis.nestFiles = Object.fromEntries(Object.entries(page.files).map(([name, text]) => [name, bytesOf(text)]));

let stream = null; // opened from `data`
let data = new Uint8Array();
let header = 0; // bytes, which the first frame has
let turn = 0; // the latest call of show ends the earlier ones

/** Show another stream. */
async function open(bytes) {
  const view = new DataView(bytes.buffer);
  data = bytes;
  header = bytes.length < 60 ? 0 : 64 + view.getUint32(12, true) + view.getUint32(16, true); // docs/format.md
  at("image").replaceChildren();
  stream = await LocalStream.open(data.slice());
  at("bytes").value = at("bytes").max;
  await show();
}

/** Return how many bytes the slider stands for: each step takes as many times more. */
function wanted() {
  const share = at("bytes").value / at("bytes").max;
  return Math.ceil(Math.min(header, data.length) ** (1 - share) * data.length ** share);
}

async function show() {
  const own = ++turn;
  at("error").hidden = true;
  try {
    for await (const frame of stream.images({ bytes: wanted() })) if (own === turn) draw(frame);
  } catch (error) {
    if (own !== turn) return;
    at("error").textContent = error.message;
    at("error").hidden = false;
  }
}

function draw({ bytes, total, images }) {
  if (!at("image").length) at("image").append(...images.map(({ name }, i) => new Option(name, i)));
  at("choice").hidden = images.length < 2;
  const image = images[at("image").value || 0];
  if (!image) return;
  [at("canvas").width, at("canvas").height] = [image.width, image.height];
  at("canvas").getContext("2d").putImageData(toImageData(image), 0, 0);
  at("canvas").setAttribute("aria-label", image.name);
  const pixels = images.reduce((sum, { width, height }) => sum + width * height, 0);
  at("shown").textContent =
    `${bytes.toLocaleString("en")} of ${total.toLocaleString("en")} bytes, ${((8 * bytes) / pixels).toPrecision(2)} bpp, ` +
    `${image.width} x ${image.height} pixels`;
}

at("bytes").addEventListener("input", show);
at("image").addEventListener("change", show);
at("file").addEventListener("change", async ({ target }) => open(new Uint8Array(await target.files[0].arrayBuffer())));
await open(bytesOf(page.stream));
