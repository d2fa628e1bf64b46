// Runs a model on numbers from standard input and writes what it gives to standard output:
//
//     node run_model.mjs model.wasm < input.bin > output.bin
//
// In a browser, fetch takes the place of readFileSync; nothing else differs.
import { readFileSync, writeSync } from "node:fs";

const { instance } = await WebAssembly.instantiate(readFileSync(process.argv[2]));
const model = instance.exports;
const bytes = (at, count) => new Uint8Array(model.memory.buffer, at, count);

function check(status) {
  if (status >= 0) return;
  const text = Buffer.from(model.memory.buffer, model.last_error());
  throw new Error(text.subarray(0, text.indexOf(0)).toString());
}

model._initialize();
check(model.input_count());
bytes(model.input_data(0), model.input_bytes(0)).set(readFileSync(0));
check(model.run());
writeSync(1, bytes(model.output_data(0), model.output_bytes(0)));
