// Goal: our fast paths for hashes, signatures and calldata equal the general libraries, and no signature passes that the token would refuse.
import { createRequire } from "node:module";
import * as fc from "fast-check";
import type secp256k1 from "secp256k1";
import t from "tap";
import {
  bytesToHex,
  encodeFunctionData,
  encodeFunctionResult,
  hashTypedData,
  hexToBytes,
  multicall3Abi,
  numberToHex,
  parseSignature,
  serializeCompactSignature,
  serializeTransaction,
  signatureToCompactSignature,
} from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { decodeAggregate, encodeAggregate } from "../../server/infra/chain/contracts.ts";
import { transferDigest } from "../../server/schemes/exact-eip3009/onchain.ts";
import { serialize } from "../../server/infra/relayer-signer.ts";
import { parseEcdsa, recoverSigner } from "../../server/core/signatures.ts";
import { TRANSFER_TYPES } from "../helpers/eip3009.ts";

const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
const hex = (bytes: number) =>
  fc.uint8Array({ minLength: bytes, maxLength: bytes }).map((value) => bytesToHex(value));
const uint256 = fc.bigInt({ min: 0n, max: 2n ** 256n - 1n });
const account = privateKeyToAccount(generatePrivateKey());

t.test("the packed digest equals EIP-712's", async (t) => {
  fc.assert(
    fc.property(
      fc.record({
        from: hex(20),
        to: hex(20),
        value: uint256,
        validAfter: uint256,
        validBefore: uint256,
        nonce: hex(32),
      }),
      fc.string(),
      fc.string(),
      fc.integer({ min: 1, max: 2 ** 40 }),
      hex(20),
      (message, name, version, chainId, verifyingContract) => {
        const domain = { name, version, chainId, verifyingContract };
        const expected = hashTypedData({
          domain,
          types: TRANSFER_TYPES,
          primaryType: "TransferWithAuthorization",
          message,
        });
        return bytesToHex(transferDigest(domain, message)) === expected;
      },
    ),
    { numRuns: 300 },
  );
  t.pass();
});

t.test("both secp256k1 libraries recover the signer, and agree on invalid input", async (t) => {
  const load = createRequire(import.meta.url);
  const native = load("secp256k1/bindings.js") as typeof secp256k1;
  const portable = load("secp256k1/elliptic.js") as typeof secp256k1;
  for (let round = 0; round < 20; round += 1) {
    const digest = generatePrivateKey();
    const signature = parseEcdsa(await account.sign({ hash: digest }));
    if (!signature) throw new Error("a good signature was refused");
    const expected = account.address.toLowerCase();
    t.equal(recoverSigner(hexToBytes(digest), signature, native), expected);
    t.equal(recoverSigner(hexToBytes(digest), signature, portable), expected);
  }
  fc.assert(
    fc.property(hex(65), hex(32), (random, digest) => {
      const signature = parseEcdsa(`${random.slice(0, 130)}1b`);
      if (!signature) return true;
      const bytes = hexToBytes(digest);
      return recoverSigner(bytes, signature, native) === recoverSigner(bytes, signature, portable);
    }),
    { numRuns: 100 },
  );
});

t.test("a signature has one canonical form", async (t) => {
  const long = await account.sign({ hash: generatePrivateKey() });
  const canonical = parseEcdsa(long)?.hex;
  t.equal(canonical, long);
  const compact = serializeCompactSignature(signatureToCompactSignature(parseSignature(long)));
  t.equal(parseEcdsa(compact)?.hex, long, "EIP-2098");
  t.equal(
    parseEcdsa(`${long.slice(0, 130)}0${long.endsWith("1c") ? 1 : 0}`)?.hex,
    long,
    "v 0 or 1",
  );
  t.equal(parseEcdsa(`0x${long.slice(2).toUpperCase()}`)?.hex, long);
  const highS = numberToHex(ORDER - BigInt(`0x${long.slice(66, 130)}`), { size: 32 }).slice(2);
  const refused: [string, string][] = [
    ["high s", `${long.slice(0, 66)}${highS}${long.endsWith("1c") ? "1b" : "1c"}`],
    ["s zero", `${long.slice(0, 66)}${"0".repeat(64)}1b`],
    ["v 29", `${long.slice(0, 130)}1d`],
    ["too short", long.slice(0, -4)],
    ["too long", `${long}00`],
    ["no hex", `0x${"zz".repeat(65)}`],
    ["empty", ""],
  ];
  for (const [name, signature] of refused) t.equal(parseEcdsa(signature), undefined, name);
});

t.test("aggregate3 is encoded and decoded as the ABI defines it", async (t) => {
  const call = fc.record({
    target: hex(20),
    data: fc.uint8Array({ maxLength: 200 }).map((value) => bytesToHex(value)),
    mustSucceed: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(call, { minLength: 1, maxLength: 8 }), (calls) => {
      const expected = encodeFunctionData({
        abi: multicall3Abi,
        functionName: "aggregate3",
        args: [
          calls.map(({ target, data, mustSucceed }) => ({
            target,
            allowFailure: !mustSucceed,
            callData: data,
          })),
        ],
      });
      return encodeAggregate(calls) === expected;
    }),
  );
  const result = fc.record({
    success: fc.boolean(),
    returnData: fc.uint8Array({ maxLength: 200 }).map((value) => bytesToHex(value)),
  });
  fc.assert(
    fc.property(fc.array(result, { maxLength: 8 }), (results) => {
      const answer = encodeFunctionResult({
        abi: multicall3Abi,
        functionName: "aggregate3",
        result: results,
      });
      const decoded = decodeAggregate(answer, results.length);
      return results.every(
        ({ success, returnData }, index) =>
          decoded[index]?.success === success && decoded[index]?.data === returnData,
      );
    }),
  );
  const one = encodeFunctionResult({
    abi: multicall3Abi,
    functionName: "aggregate3",
    result: [{ success: true, returnData: "0x" }],
  });
  t.throws(() => decodeAggregate(one, 2), "another number of results than calls");
  t.throws(() => decodeAggregate("0x", 1), "an account without code returns nothing");
  t.throws(() => decodeAggregate(`0x${"0".repeat(64)}`, 1));
});

t.test("a serialized transaction equals viem's", async (t) => {
  const amount = fc.oneof(fc.constant(0n), fc.bigInt({ min: 0n, max: 2n ** 64n }));
  fc.assert(
    fc.property(
      fc.record(
        {
          type: fc.constant("eip1559" as const),
          chainId: fc.integer({ min: 1, max: 2 ** 40 }),
          to: hex(20),
          nonce: fc.integer({ min: 0, max: 2 ** 40 }),
          data: fc.uint8Array({ maxLength: 700 }).map((value) => bytesToHex(value)),
          gas: amount,
          value: amount,
          // The tip must not exceed the maximum fee.
          maxPriorityFeePerGas: fc.bigInt({ min: 0n, max: 9n }),
          maxFeePerGas: fc.bigInt({ min: 9n, max: 2n ** 64n }),
        },
        { requiredKeys: ["type", "chainId", "maxFeePerGas"] },
      ),
      fc.option(fc.record({ r: hex(32), s: hex(32), yParity: fc.constantFrom(0, 1) }), {
        nil: undefined,
      }),
      (transaction, signature) =>
        serialize(transaction, signature) === serializeTransaction(transaction, signature),
    ),
  );
  const listed = {
    type: "eip1559",
    chainId: 1,
    accessList: [{ address: account.address, storageKeys: [] }],
  } as const;
  t.equal(serialize(listed), serializeTransaction(listed));
});
