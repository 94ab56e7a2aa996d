// Reads a stream at an address up to several budgets in turn; prints the last frame of each as JSON.
import { createHash } from "node:crypto";

const [, , folder, address, ...budgets] = process.argv;
const { NestStream } = await import(`${folder}/nest.js`);
const stream = await NestStream.open(address);
for (const budget of budgets) {
  let last;
  for await (const frame of stream.images({ bytes: Number(budget) })) last = frame;
  const hash = createHash("sha256");
  for (const { pixels } of last.images) hash.update(pixels);
  console.log(JSON.stringify({ bytes: last.bytes, total: last.total, complete: last.complete, pixels: hash.digest("hex") }));
}
await stream.close();
