// Decodes streams off the page's main thread: calls of nest.js come as messages.
import { LocalStream } from "./stream.js";

const streams = new Map();
const frames = new Map();

const calls = {
  async open(stream, source, options) {
    streams.set(stream, await LocalStream.open(source, options));
  },
  images(stream, iteration, options) {
    frames.set(iteration, streams.get(stream).images(options));
  },
  async next(_, iteration) {
    const step = await frames.get(iteration).next();
    if (step.done) frames.delete(iteration);
    return step;
  },
  async end(_, iteration) {
    await frames.get(iteration)?.return();
    frames.delete(iteration);
  },
  async close(stream) {
    await streams.get(stream)?.close();
    streams.delete(stream);
  },
};

onmessage = async ({ data: { id, call, stream, args } }) => {
  try {
    const result = await calls[call](stream, ...args);
    postMessage({ id, result }, result?.value?.images.map(({ pixels }) => pixels.buffer) ?? []);
  } catch (error) {
    postMessage({ id, error: { name: error.name, message: error.message } });
  }
};
