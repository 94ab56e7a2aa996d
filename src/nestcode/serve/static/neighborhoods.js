// Neighborhoods: all items that share a prefix with the query, from everything to the query itself.
import { post, request } from "./api.js";
import { guarded, say } from "./status.js";

const $ = (id) => document.getElementById(id);
const SHOWN = 60;
const COLUMNS = 6; // shown with each hit
let info;
let query = { ids: [0] }; // as /v1/nested takes it
let counts = [];
let longest = 1; // the length at which only one item is left: the slider ends there
let running = new AbortController();

export async function start(served) {
  info = served;
  $("item").max = Math.max(info.count - 1, 0);
  $("text-query").hidden = !info.texts;
  $("image-query").hidden = !takesImages();
  const known = Object.entries(info.columns ?? {});
  $("condition-query").hidden = $("known-columns").hidden = !known.length;
  $("known-columns").textContent = `Conditions compare ${known.map(([name, kind]) => `${name} (${kind})`).join(", ")}, as in ${example(known)}.`;
  $("pick").addEventListener("submit", (event) => { event.preventDefault(); choose(); });
  $("item").addEventListener("change", () => $("item").value && pick(Number($("item").value)));
  $("random").addEventListener("click", () => pick(Math.floor(Math.random() * info.count)));
  $("slider").addEventListener("input", guarded(() => move()));
  $("file").addEventListener("change", () => $("file").files[0] && useImage($("file").files[0]));
  if (takesImages()) {
    addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("drop"); });
    addEventListener("dragleave", () => document.body.classList.remove("drop"));
    addEventListener("drop", (event) => {
      event.preventDefault();
      document.body.classList.remove("drop");
      if (event.dataTransfer.files[0]) useImage(event.dataTransfer.files[0]);
    });
    addEventListener("paste", (event) => event.clipboardData.files[0] && useImage(event.clipboardData.files[0]));
  }
  if (!info.count) return say("The index is empty.");
  await useItem(Math.floor(0.75 * info.count)); // the first items are often alike, such as a sky
}

/** Return a condition on one of the columns, in the words of the server. */
function example(columns) {
  const values = { string: "'text'", category: "'text'", strings: "'text'", bool: "TRUE", date: "'2024-05-01'", bytes: "NULL" };
  const [name, kind] = columns.find(([, other]) => other !== "bytes" && other !== "string") ?? columns[0] ?? ["year", "int64"];
  const quoted = /^[A-Za-z_]\w*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
  if (kind === "strings") return `array_contains(${quoted}, 'text')`;
  if (kind === "bytes") return `${quoted} IS NOT NULL`;
  return `${quoted} = ${values[kind] ?? (kind.startsWith("timestamp") ? "'2024-05-01 12:00'" : "5")}`;
}

const takesImages = () => info.image?.layout === "channels first";

const choose = guarded(async () => {
  const text = $("text").value.trim();
  if (text && info.texts) await use({ texts: [text] }, textOf(text));
  else if ($("item").value) await useItem(Number($("item").value));
  else await use(query, $("query").firstChild); // an image of the user, or the last text
});

async function useItem(id) {
  $("text").value = "";
  $("item").value = id;
  await use({ ids: [id] }, await picture(id));
}

const pick = guarded(useItem);

/** Use an image of the user: cropped, resized and laid out as the items of the index are. */
const useImage = guarded(async (file) => {
  const [side] = info.image.shape;
  const bitmap = await createImageBitmap(file).catch(() => { throw new Error(`${file.name || "This"} is not an image.`); });
  const canvas = Object.assign(document.createElement("canvas"), { width: side, height: side });
  const context = canvas.getContext("2d");
  const square = Math.min(bitmap.width, bitmap.height);
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, (bitmap.width - square) / 2, (bitmap.height - square) / 2, square, square, 0, 0, side, side);
  const { data } = context.getImageData(0, 0, side, side);
  const vector = [0, 1, 2].flatMap((color) => Array.from({ length: side * side }, (_, i) => data[4 * i + color] / 255));
  const shown = Object.assign(new Image(), { src: canvas.toDataURL(), alt: "Your image" });
  $("text").value = $("item").value = ""; // so that Show asks for the image again
  await use({ vectors: [vector] }, shown);
});

async function use(asked, shown) {
  const nested = await post("/v1/nested", { ...asked, limit: 0 });
  query = asked;
  $("query").replaceChildren(shown);
  counts = nested.count;
  const alone = counts.findIndex((count) => count <= 1);
  longest = Math.max(alone < 0 ? counts.length - 1 : alone, 1);
  drawBits(nested.code);
  drawTree();
  $("slider").max = longest;
  const small = counts.findIndex((count) => count <= SHOWN);
  $("slider").value = small < 0 ? counts.length - 1 : small;
  await Promise.all([move(), search()]);
}

async function move() {
  const length = Number($("slider").value);
  $("length").value = `${length} of ${info.width} bits`;
  for (const [place, bit] of [...$("bits").children].entries()) bit.classList.toggle("kept", place < length);
  $("bits").setAttribute("aria-label", `The first ${length} bits of the query's code`);
  const count = counts[length] ?? 0;
  const path = counts.slice(0, length + 1).filter((value, place, all) => value !== all[place - 1]);
  const told = path.length > 6 ? [...path.slice(0, 3), "…", ...path.slice(-2)] : path;
  $("size").textContent = `${number(count)} of ${number(info.count)} items share them. Path in the tree: ${told.map(number).join(" → ")}.`;
  const marker = document.querySelector("#tree line");
  marker.setAttribute("x1", (600 * length) / longest);
  marker.setAttribute("x2", (600 * length) / longest);
  running.abort();
  running = new AbortController();
  const found = await post("/v1/nested", { ...query, length, limit: Math.min(SHOWN, info.limits.k) }, running.signal);
  $("members-title").textContent = `Members (${found.ids.length} of ${number(count)} shown)`;
  await fill($("members"), found.ids);
}

async function search() {
  const asked = { ...query, k: Math.min(30, info.limits.k) };
  const condition = $("condition").value.trim();
  const columns = Object.keys(info.columns ?? {}).filter((name) => info.columns[name] !== "bytes").slice(0, COLUMNS);
  if (condition) asked.filter = condition;
  if (columns.length) asked.columns = columns;
  const found = await post("/v1/search", asked);
  const micros = found.milliseconds === null ? "" : `, ${number(Math.round(1000 * found.milliseconds))} µs`;
  $("found-title").textContent = `Search by distance: ${number(found.compared[0])} items compared${micros}`;
  await fill($("found"), found.ids[0], found.distances[0], found.attributes?.[0]);
}

const number = (value) => value.toLocaleString("en");
const shown = (distance) => (Math.abs(distance) < 1e-9 ? "0" : distance.toPrecision(3)); // an item and itself differ by rounding

async function fill(grid, ids, distances, attributes) {
  const buttons = await Promise.all(ids.map(async (id, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.title = `Item ${id}`;
    button.append(await picture(id));
    if (distances) button.append(Object.assign(document.createElement("small"), { textContent: shown(distances[place]) }));
    if (attributes) button.append(described(attributes[place]));
    button.addEventListener("click", () => { $("item").value = id; pick(id); });
    return button;
  }));
  grid.replaceChildren(...buttons);
}

/** Return attributes as a list of names and values; what is null or empty is left out. */
function described(attributes) {
  const list = Object.assign(document.createElement("span"), { className: "attributes" });
  for (const [name, value] of Object.entries(attributes)) {
    const content = Array.isArray(value) ? value.join(", ") : String(value ?? "");
    if (!content) continue;
    const row = document.createElement("span");
    row.append(Object.assign(document.createElement("b"), { textContent: name }), ` ${content.slice(0, 200)}`);
    list.append(row);
  }
  return list;
}

const pictures = new Map(); // by id; what is shown again is not fetched again

async function picture(id) {
  if (!info.items) return textOf(`#${id}`);
  if (!pictures.has(id)) {
    if (pictures.size > 2000) pictures.clear();
    pictures.set(id, request(`/v1/items/${id}`).then((answer) => info.items === "text" ? answer.text() : answer.blob())
      .then((content) => (typeof content === "string" ? content : URL.createObjectURL(content)))
      .catch(() => null));
  }
  const content = await pictures.get(id);
  if (content === null || info.items === "text") return textOf(content ?? `#${id}`);
  return Object.assign(new Image(), { src: content, alt: `Item ${id}` });
}

const textOf = (text) => Object.assign(document.createElement("span"), { className: "text", textContent: text });

function drawBits(code) {
  const bits = [...code].flatMap((digit) => [...parseInt(digit, 16).toString(2).padStart(4, "0")]).slice(0, info.width);
  $("bits").replaceChildren(...bits.map((bit) => {
    const mark = document.createElement("i");
    mark.classList.toggle("one", bit === "1");
    return mark;
  }));
}

function drawTree() {
  const top = Math.log2(Math.max(info.count, 2));
  const at = (count, length) => `${(600 * length) / longest},${112 - (104 * Math.log2(Math.max(count, 1))) / top}`;
  const line = counts.slice(0, longest + 1).map((count, length) => at(count, length)).join(" L ");
  $("tree").setAttribute("aria-labelledby", "tree-title");
  $("tree").innerHTML = `<path d="M ${line}"/><line y1="0" y2="120" x1="0" x2="0"/>`;
}
