// Prints how many bytes of a stream in a file images need that are shown at each width.
import { readFileSync } from "node:fs";

const [, , folder, path, ...widths] = process.argv;
const { ImageStreamDecoder, bytesForWidth } = await import(`${folder}/decoder.js`);
const decoder = new ImageStreamDecoder();
await decoder.feed(new Uint8Array(readFileSync(path)));
for (const width of widths) console.log(bytesForWidth(decoder.header, Number(width)));
