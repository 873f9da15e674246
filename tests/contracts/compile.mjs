// Compiles every contract under src/ into artifacts/<Contract>.json ({"abi", "bytecode"}), which are committed so that
// the tests need no Solidity compiler. `--check` compiles and fails when a committed artifact is out of date; `make lint` does.
//
//   npm install --prefix <folder> solc@0.8.37
//   NODE_PATH=<folder>/node_modules node tests/contracts/compile.mjs [--check]
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const VERSION = "0.8.37";
// createRequire, because `import` does not look into NODE_PATH.
const solc = createRequire(import.meta.url)("solc");
if (!solc.version().startsWith(`${VERSION}+`)) {
  console.error(`solc ${solc.version()} found, ${VERSION} needed: another version writes other bytecode`);
  process.exit(1);
}

const folder = (name) => fileURLToPath(new URL(`./${name}/`, import.meta.url));
const sources = Object.fromEntries(
  readdirSync(folder("src"))
    .filter((name) => name.endsWith(".sol"))
    .sort()
    .map((name) => [name, { content: readFileSync(folder("src") + name, "utf8") }]),
);
const input = {
  language: "Solidity",
  sources,
  settings: {
    // Paris has no PUSH0, so that the same bytecode also runs on older chains and on TRON.
    evmVersion: "paris",
    optimizer: { enabled: true, runs: 200 },
    // Without metadata the bytecode depends on the code alone, not on comments or paths.
    metadata: { appendCBOR: false, bytecodeHash: "none" },
    outputSelection: { "*": { "*": ["abi", "evm.bytecode.object"] } },
  },
};

const output = JSON.parse(solc.compile(JSON.stringify(input)));
const problems = output.errors ?? [];
for (const problem of problems) console.error(problem.formattedMessage);
if (problems.length > 0) process.exit(1);

const check = process.argv.includes("--check");
let stale = 0;
for (const contracts of Object.values(output.contracts)) {
  for (const [name, contract] of Object.entries(contracts)) {
    const path = `${folder("artifacts")}${name}.json`;
    const text = `${JSON.stringify({ abi: contract.abi, bytecode: `0x${contract.evm.bytecode.object}` })}\n`;
    if (!check) {
      writeFileSync(path, text);
    } else if (readFileSync(path, "utf8") !== text) {
      console.error(`artifacts/${name}.json is out of date`);
      stale += 1;
    }
  }
}
process.exit(stale === 0 ? 0 : 1);
