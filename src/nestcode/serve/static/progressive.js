// Progressive: one stream decoded from as many bytes as the slider says, beside JPEG and WebP of the same size.
import { hasToken, request } from "./api.js";
import { guarded, say } from "./status.js";

const $ = (id) => document.getElementById(id);
let info;
let nest; // the decoder of browsers, which is loaded for this view only
let stream;
let total = 0;
let fewest = 1; // bytes that hold the header
let playing = 0;
let latest = 0;

export async function start(served) {
  info = served;
  nest = await import("/static/nest/nest.js");
  $("stream").replaceChildren(...Object.keys(info.streams).map((name) => new Option(name, name)));
  $("stream").addEventListener("change", guarded(open));
  $("image").addEventListener("change", guarded(drawWhole));
  $("budget").addEventListener("input", guarded(() => { playing = 0; return draw(); }));
  $("play").addEventListener("click", guarded(play));
  await open();
}

async function open() {
  playing = 0;
  say("Reading the stream …");
  await stream?.close();
  const name = $("stream").value;
  const url = `/v1/streams/${encodeURIComponent(name)}`;
  total = info.streams[name];
  stream = await nest.NestStream.open(hasToken() ? await (await request(url)).blob() : url);
  fewest = await findFewest();
  const images = (await frame(total)).images;
  $("image").replaceChildren(...images.map((image, place) => new Option(image.name, place)));
  say("");
  await drawWhole();
}

/** Return the images after some bytes. */
async function frame(bytes) {
  let last;
  for await (const one of stream.images({ bytes })) last = one;
  return last;
}

/** Return about how many bytes hold the header: fewer are refused. */
async function findFewest() {
  for (let bytes = Math.min(300, total); ; bytes = Math.min(total, Math.ceil(1.2 * bytes))) {
    try {
      await frame(bytes);
      return bytes;
    } catch (error) {
      if (bytes === total) throw error;
    }
  }
}

const chosen = () => Math.round(fewest * (total / fewest) ** (Number($("budget").value) / 1000)); // logarithmic

const context = (canvas) => canvas.getContext("2d", { willReadFrequently: true });

function paint(canvas, image) {
  canvas.width = image.width;
  canvas.height = image.height;
  context(canvas).putImageData(image instanceof ImageData ? image : nest.toImageData(image), 0, 0);
}

async function drawWhole() {
  paint($("whole"), (await frame(total)).images[Number($("image").value)]);
  await draw();
}

async function draw(bytes = chosen()) {
  const turn = ++latest;
  const { images } = await frame(bytes);
  if (turn !== latest) return; // the slider has moved on
  const image = images[Number($("image").value)];
  const share = images.length > 1 ? " of all images" : "";
  $("bytes").value = `${bytes.toLocaleString("en")} of ${total.toLocaleString("en")}${share}`;
  paint($("ours"), image);
  const own = images.length > 1 ? bytes / images.length : bytes; // of this image, if all are alike
  $("ours-caption").textContent = `Nestcode, the first ${bytes.toLocaleString("en")} bytes: ${quality(image)}`;
  for (const kind of ["jpeg", "webp"]) {
    const file = await encoded(kind, own);
    if (turn !== latest) return;
    if (file.data) paint($(kind), file.data);
    else context($(kind)).clearRect(0, 0, $(kind).width, $(kind).height);
    const name = (kind === "jpeg" ? "JPEG" : "WebP") + (images.length > 1 ? ", in an even share of these bytes," : "");
    $(`${kind}-caption`).textContent = file.data
      ? `${name} of ${file.size.toLocaleString("en")} bytes: ${quality(file.data)}`
      : `${name} does not get that small: its lowest quality takes ${file.size.toLocaleString("en")} bytes`;
  }
}

/** Return the PSNR beside the whole stream. */
function quality(image) {
  const whole = context($("whole")).getImageData(0, 0, $("whole").width, $("whole").height).data;
  const { data } = image instanceof ImageData ? image : nest.toImageData(image);
  let sum = 0;
  for (let i = 0; i < data.length; i += 4)
    for (let c = 0; c < 3; c++) sum += (data[i + c] - whole[i + c]) ** 2;
  const error = sum / (0.75 * data.length);
  return error ? `${(10 * Math.log10(255 ** 2 / error)).toFixed(1)} dB` : "identical";
}

/** Return the best file of a kind that has at most so many bytes, decoded; without data if none is that small. */
async function encoded(kind, bytes) {
  const encode = (quality) => new Promise((resolve) => $("whole").toBlob(resolve, `image/${kind}`, quality));
  let [low, high, best] = [0, 1, await encode(0)];
  if (best.size > bytes) return { size: best.size };
  for (let step = 0; step < 6; step++) {
    const middle = (low + high) / 2;
    const file = await encode(middle);
    if (file.size > bytes) high = middle;
    else [low, best] = [middle, file];
  }
  const bitmap = await createImageBitmap(best);
  const drawn = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d", { willReadFrequently: true });
  drawn.drawImage(bitmap, 0, 0);
  return { size: best.size, data: drawn.getImageData(0, 0, bitmap.width, bitmap.height) };
}

/** Move the slider as a download over the chosen link would. */
async function play() {
  const turn = (playing = performance.now());
  while (playing === turn) {
    const bytes = Math.min(total, Math.max(fewest, Math.round(((performance.now() - turn) / 1000) * Number($("link").value))));
    $("budget").value = (1000 * Math.log(bytes / fewest)) / Math.log(total / fewest || 1);
    await draw(bytes);
    if (bytes >= total) playing = 0;
    await new Promise(requestAnimationFrame);
  }
}
