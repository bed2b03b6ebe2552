// Runs exported networks in ONNX Runtime: node run.cjs FILE DIMS [FILE DIMS]...
// It runs FILE.onnx on the float32 values in FILE.image, a tensor of the dimensions
// DIMS (such as 2,1,12,16), and writes the logits to FILE.logits.
const fs = require("fs");
const ort = require("onnxruntime-web");

ort.env.wasm.numThreads = 1; // more need workers, which Node.js does not start from a blob

async function main(args) {
  for (; args.length > 0; args = args.slice(2)) {
    const [file, dims] = args;
    const session = await ort.InferenceSession.create(new Uint8Array(fs.readFileSync(file + ".onnx")));
    const values = new Float32Array(new Uint8Array(fs.readFileSync(file + ".image")).buffer);
    const image = new ort.Tensor("float32", values, dims.split(",").map(Number));
    const { logits } = await session.run({ image });
    fs.writeFileSync(file + ".logits", Buffer.from(logits.data.buffer, logits.data.byteOffset, logits.data.byteLength));
  }
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
