// Decodes streams in Node: tasks come as JSON on stdin, results go as JSON to stdout.
//
// A task is { stream, codec, cuts, chunk }: paths, lengths of prefixes, and the size of the chunks that each is fed in. A
// result is, for each cut, the SHA-256 of all pixels, or the error, then a "|" and that of what precedes the damage.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

const [, , folder] = process.argv;
const { Codec, ImageStreamDecoder } = await import(`${folder}/decoder.js`);

function digest(decoder) {
  const hash = createHash("sha256");
  for (const { pixels } of decoder.images()) hash.update(pixels);
  return hash.digest("hex");
}

async function decode(data, codec, chunk) {
  const decoder = new ImageStreamDecoder({ codec });
  try {
    for (let at = 0; at < data.length; at += chunk) await decoder.feed(data.subarray(at, at + chunk));
    return digest(decoder);
  } catch (error) {
    const text = `${error.name}: ${error.message}`;
    return decoder.header ? `${text}|${digest(decoder)}` : text;
  } finally {
    decoder.close();
  }
}

const out = [];
for (const { stream, codec, cuts, chunk } of JSON.parse(readFileSync(0, "utf8"))) {
  const data = new Uint8Array(readFileSync(stream));
  const given = codec ? await Codec.parse(new Uint8Array(readFileSync(codec))) : null;
  const results = [];
  for (const cut of cuts) results.push(await decode(data.subarray(0, cut), given, chunk ?? 2 ** 30));
  out.push(results);
}
console.log(JSON.stringify(out));
