/** Contracts that pass calls on: Multicall3 and our batcher. And the code that reads the sizes of contracts. */
import { Args, bytes, require, selector, word } from "./abi.ts";
import { Revert, type Contract, type Execution } from "./execution.ts";

const AGGREGATE3 = selector("aggregate3((address,bool,bytes)[])");
const GET_ETH_BALANCE = selector("getEthBalance(address)");
const GET_BLOCK_NUMBER = selector("getBlockNumber()");
const GET_TIMESTAMP = selector("getCurrentBlockTimestamp()");
/** Measured with the real contracts: for each call, and for each byte that is passed on. */
const PER_CALL = 900;
const PER_BYTE = 1;
const BATCHER_PER_CALL = 600;

export const multicall3: Contract = (frame) => {
  const args = new Args(frame.args);
  if (frame.selector === GET_ETH_BALANCE) return word(frame.run.number(`wei ${args.address(0)}`));
  if (frame.selector === GET_BLOCK_NUMBER) return word(frame.run.block.number);
  if (frame.selector === GET_TIMESTAMP) return word(frame.run.block.timestampSeconds);
  if (frame.selector !== AGGREGATE3) throw new Revert("");
  const calls = args.tuples(0);
  let offsets = "";
  let tuples = "";
  for (const call of calls) {
    const [target, mayFail, data] = [call.address(0), call.bool(1), call.bytes(2)];
    frame.charge(PER_CALL + (PER_BYTE * data.length) / 2);
    const { success, output } = frame.call(target, data);
    require(success || mayFail, "Multicall3: call failed");
    offsets += word(calls.length * 32 + tuples.length / 2);
    tuples += word(success ? 1 : 0) + word(64) + bytes(output);
  }
  return word(32) + word(calls.length) + offsets + tuples;
};

const RELAY = selector("relay(bytes)");
const TRANSFER = selector(
  "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)",
);
const HEAD = 2 * 156;
const MODULUS = 2n ** 256n;
const HIGH_BIT = 2n ** 255n;

/** See Batcher.sol for the form of `packed`. */
export const batcher: Contract = (frame) => {
  if (frame.selector !== RELAY || frame.value > 0n) throw new Revert("");
  const packed = new Args(frame.args).bytes(0);
  if (packed.length < HEAD) throw new Revert("");
  const number = (at: number, chars: number): bigint =>
    chars === 0 ? 0n : BigInt(`0x${packed.slice(at, at + chars)}`);
  const token = `0x${packed.slice(0, 40)}`;
  const gasEach = Number.parseInt(packed.slice(40, 48), 16);
  const widths = [0, 1, 2, 3].map((field) => 2 * Number(number(48 + 2 * field, 2)));
  if (widths.some((width) => width > 64)) throw new Revert("");
  const bases = [0, 1, 2, 3].map((field) => number(56 + 64 * field, 64));
  const size = 232 + widths.reduce((sum, width) => sum + width);
  const count = Math.floor((packed.length - HEAD) / size);
  if (HEAD + count * size !== packed.length) throw new Revert("");
  let answers = "";
  for (let at = HEAD; at < packed.length; at += size) {
    let fieldAt = at + 232;
    const fields = widths.map((width, index) => {
      const own = number(fieldAt, width);
      fieldAt += width;
      return word(((bases[index] ?? 0n) + own) % MODULUS);
    });
    const nonce = packed.slice(at + 40, at + 104);
    const r = packed.slice(at + 104, at + 168);
    const s = number(at + 168, 64);
    const v = s >= HIGH_BIT ? 28 : 27;
    const from = packed.slice(at, at + 40).padStart(64, "0");
    const signature = word(v) + r + word(s % HIGH_BIT);
    frame.charge(BATCHER_PER_CALL);
    const { success } = frame.call(
      token,
      TRANSFER + from + fields.join("") + nonce + signature,
      gasEach,
    );
    answers += success ? "01" : "00";
  }
  return word(32) + bytes(answers);
};

/** Code that the server runs as a contract creation: it returns the code size of each address behind it. */
const SIZES_CODE = "6024380380602460003960005b81811015601f5780513b8152602001600c565b506000f3";

/** Undefined for any other creation. */
export function codeSizes(run: Execution, input: string): string | undefined {
  if (!input.startsWith(SIZES_CODE)) return undefined;
  const words = input.slice(SIZES_CODE.length);
  let answer = "";
  for (let at = 0; at < words.length; at += 64) {
    const code = run.codeOf(`0x${words.slice(at + 24, at + 64)}`) ?? "0x";
    answer += word((code.length - 2) / 2);
  }
  return answer;
}
