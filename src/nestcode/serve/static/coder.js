// Coder: the error by length, what each bit gains, and the first directions.
import { get } from "./api.js";

const $ = (id) => document.getElementById(id);

export async function start(info) {
  const { lengths, errors, directions } = await get("/v1/coder");
  const width = lengths.at(-1);
  $("coder-about").textContent = `${info.coder.kind} of ${info.coder.width} bits for ${info.coder.features} features `
    + `(${info.coder.metric}). Errors are the mean squared error of a feature, as measured when the coder was fitted.`;
  plot($("errors"), lengths.map((length, i) => [length, errors[i]]), width, "mean squared error");
  const gains = lengths.slice(1).map((length, i) => [length, (errors[i] - errors[i + 1]) / (length - lengths[i])]);
  plot($("gains"), gains, width, "error removed by each bit");
  if (!directions) {
    $("directions-title").textContent = "This coder has no linear directions";
    return;
  }
  $("directions").replaceChildren(...directions.map((direction, place) => drawn(direction, place, info.image)));
}

/** Draw a line on a logarithmic scale. */
function plot(svg, points, width, what) {
  const known = points.filter(([, value]) => value > 0);
  const logs = known.map(([, value]) => Math.log10(value));
  const [low, high] = [Math.min(...logs), Math.max(...logs)];
  const y = (value) => 12 + (160 * (high - Math.log10(value))) / (high - low || 1);
  const line = known.map(([length, value]) => `${70 + (520 * length) / width},${y(value).toFixed(1)}`).join(" L ");
  svg.setAttribute("aria-label", `${what} by length, from ${known[0]?.[1].toPrecision(3)} to ${known.at(-1)?.[1].toPrecision(3)}, logarithmic`);
  svg.innerHTML = `<path d="M ${line}"/><text x="4" y="16">${shown(10 ** high)}</text>`
    + `<text x="4" y="176">${shown(10 ** low)}</text><text x="70" y="194">0 bits</text>`
    + `<text x="590" y="194" text-anchor="end">${width} bits</text>`;
}

const shown = (value) => (value < 0.001 ? value.toExponential(1) : value.toPrecision(2));

/** Draw a direction: as the image that it is, or as its coefficients in a row. */
function drawn(direction, place, image) {
  const canvas = document.createElement("canvas");
  const [height, width] = image ? image.shape : [1, direction.length];
  Object.assign(canvas, { height, width });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `Direction ${place + 1}`);
  const pixels = new ImageData(width, height);
  const largest = Math.max(...direction.map(Math.abs)) || 1;
  const count = width * height;
  const value = (i, color) => direction[!image ? i : image.layout === "channels first" ? color * count + i : 3 * i + color];
  for (let i = 0; i < count; i++) {
    for (let color = 0; color < 3; color++) pixels.data[4 * i + color] = 128 + (127 * value(i, color)) / largest;
    pixels.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}
