// Compiles our contracts, those of the local chain and of the tests: `npm run contracts`. The artifacts are committed,
// so that a start needs no compiler; a test checks that they match the sources.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { getContractAddress, keccak256, type Hex } from "viem";
import { CREATE2_DEPLOYER } from "../../core/networks.ts";

interface ContractSource {
  /** The Solidity file. */
  source: URL;
  contract: string;
  artifact: URL;
  /** Placed by its runtime code, which then must not contain immutables. */
  placed: boolean;
  /** State variables whose storage slots the artifact contains. */
  slots: string[];
  /** Created on any chain by the CREATE2 deployer with this salt, so its code and address never change. */
  salt?: Hex;
}

const testContracts = new URL("../../../test/helpers/contracts/", import.meta.url);

export const CONTRACTS: ContractSource[] = [
  {
    source: new URL("../../infra/chain/batcher/Batcher.sol", import.meta.url),
    contract: "Batcher",
    artifact: new URL("../../infra/chain/batcher/Batcher.json", import.meta.url),
    placed: true,
    slots: [],
    salt: `0x${"0".repeat(64)}`,
  },
  {
    source: new URL("./LocalUsdc.sol", import.meta.url),
    contract: "LocalUsdc",
    artifact: new URL("./LocalUsdc.json", import.meta.url),
    placed: true,
    slots: ["_admin", "_balanceWords"],
  },
  ...["LocalPermit2", "LocalExactPermit2Proxy", "LocalUptoPermit2Proxy"].map((contract) => ({
    source: new URL("./LocalPermit2.sol", import.meta.url),
    contract,
    artifact: new URL(`./${contract}.json`, import.meta.url),
    placed: true,
    slots: [],
  })),
  ...["LocalBatchSettlement", "LocalErc3009DepositCollector", "LocalPermit2DepositCollector"].map(
    (contract) => ({
      source: new URL("./LocalBatchSettlement.sol", import.meta.url),
      contract,
      artifact: new URL(`./${contract}.json`, import.meta.url),
      placed: true,
      slots: [],
    }),
  ),
  ...["TestWallet", "TestWalletFactory", "TestToken"].map((contract) => ({
    source: new URL(`./${contract.replace("Factory", "")}.sol`, testContracts),
    contract,
    artifact: new URL(`./${contract}.json`, testContracts),
    placed: false,
    slots: [],
  })),
];

interface CompilerOutput {
  errors?: { severity: string; formattedMessage: string }[];
  contracts: Record<string, Record<string, CompiledContract>>;
}

interface CompiledContract {
  abi: unknown[];
  evm: {
    bytecode: { object: string };
    deployedBytecode: { object: string; immutableReferences: Record<string, unknown> };
  };
  storageLayout: { storage: { label: string; slot: string }[] };
}

interface Compiler {
  version(): string;
  compile(input: string, callbacks: { import: (path: string) => { contents: string } }): string;
}

/** The text of one artifact file. */
export function compile(target: ContractSource): string {
  const require = createRequire(import.meta.url);
  const solc = require("solc") as Compiler;
  const file = basename(fileURLToPath(target.source));
  const input = {
    language: "Solidity",
    sources: { [file]: { content: readFileSync(target.source, "utf8") } },
    settings: {
      // Contracts for real networks need only PUSH0 (shanghai).
      evmVersion: target.salt === undefined ? "prague" : "shanghai",
      viaIR: true,
      optimizer: { enabled: true, runs: 1_000_000 },
      metadata: { appendCBOR: false, bytecodeHash: "none" },
      outputSelection: {
        [file]: { "*": ["abi", "evm.bytecode.object", "evm.deployedBytecode", "storageLayout"] },
      },
    },
  };
  /** A path with a scope is in a package, every other one beside the source. */
  const readImport = (path: string) => ({
    contents: readFileSync(
      path.startsWith("@") ? require.resolve(path) : new URL(path, target.source),
      "utf8",
    ),
  });
  const output = JSON.parse(
    solc.compile(JSON.stringify(input), { import: readImport }),
  ) as CompilerOutput;
  const errors = (output.errors ?? []).filter((error) => error.severity === "error");
  const compiled = output.contracts?.[file]?.[target.contract];
  if (compiled === undefined || errors.length > 0)
    throw new Error(errors.map((error) => error.formattedMessage).join("\n") || "nothing compiled");
  return `${JSON.stringify(artifactOf(target, compiled, solc.version()), null, 2)}\n`;
}

function artifactOf(target: ContractSource, compiled: CompiledContract, compiler: string) {
  const { deployedBytecode, bytecode } = compiled.evm;
  if (target.placed && Object.keys(deployedBytecode.immutableReferences ?? {}).length > 0)
    throw new Error(`${target.contract} has immutables, but is placed without its constructor`);
  const slots = target.slots.map((label) => {
    const entry = compiled.storageLayout.storage.find((variable) => variable.label === label);
    if (entry === undefined) throw new Error(`${target.contract} has no variable ${label}`);
    return [label, Number(entry.slot)];
  });
  return {
    contract: target.contract,
    compiler,
    abi: compiled.abi,
    ...create2Of(target, `0x${bytecode.object}`, `0x${deployedBytecode.object}`),
    ...(target.placed
      ? { deployedBytecode: `0x${deployedBytecode.object}` }
      : { bytecode: `0x${bytecode.object}` }),
    slots: Object.fromEntries(slots) as Record<string, number>,
  };
}

function create2Of({ salt }: ContractSource, creationCode: Hex, running: Hex) {
  if (salt === undefined) return {};
  const made = { opcode: "CREATE2", from: CREATE2_DEPLOYER, salt, bytecode: creationCode } as const;
  return { address: getContractAddress(made), codeHash: keccak256(running), salt, creationCode };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  for (const target of CONTRACTS) {
    writeFileSync(target.artifact, compile(target));
    console.log(`compiled ${target.contract}`);
  }
}
