// Goal: the committed contract artifacts equal their compiled sources, Multicall3 on the local chain is viem's, and a
// settlement costs about as much gas as on real chains.
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import t from "tap";
import { encodeFunctionData, multicall3Abi, toHex, type Abi, type Hex } from "viem";
import { MULTICALL3 } from "../../server/local/chain-contracts.ts";
import { compile, CONTRACTS } from "../../server/local/contracts/compile.ts";
import { TRANSFER_TYPES } from "../helpers/eip3009.ts";
import { isFullTier } from "../helpers/tier.ts";
import { testAccount, testChain, type TestAccount } from "../helpers/chain.ts";

/** The batcher is on chains with real money; the other contracts are only on the local chain and in tests. */
for (const target of CONTRACTS.filter(({ contract }) => isFullTier || contract === "Batcher")) {
  t.test(`${target.contract} recompiles to its artifact, byte for byte`, async (t) => {
    t.equal(compile(target), readFileSync(target.artifact, "utf8"));
  });
}

t.test("Multicall3 is what viem's creation code of it returns", async (t) => {
  const viems = readFileSync(
    new URL("../../node_modules/viem/constants/contracts.ts", import.meta.url),
    "utf8",
  );
  const [, creation] = /multicall3Bytecode =\s*'(0x[0-9a-f]+)'/.exec(viems) ?? [];
  const { publicClient } = await testChain(t);
  const { data } = await publicClient.call({ data: creation as Hex });
  t.equal(await publicClient.getCode({ address: MULTICALL3 }), data);
});

t.test("gas of a settlement, alone and in a batch of 100", async (t) => {
  const chain = await testChain(t);
  const abi = (
    JSON.parse(
      readFileSync(new URL("../../server/local/contracts/LocalUsdc.json", import.meta.url), "utf8"),
    ) as { abi: Abi }
  ).abi;
  const payee = testAccount(900).address;
  const payers = Array.from({ length: 101 }, (_, index) => testAccount(1_000 + index));
  await chain.mint(
    payers.map(({ address }) => address),
    5_000_000n,
  );
  const settlement = async (payer: TestAccount): Promise<Hex> => {
    const message = {
      from: payer.address,
      to: payee,
      value: 1_000n,
      validAfter: 0n,
      validBefore: 2n ** 40n,
      nonce: toHex(randomBytes(32)),
    };
    const signature = await payer.signTypedData({
      domain: { name: "USDC", version: "2", chainId: chain.chainId, verifyingContract: chain.usdc },
      types: TRANSFER_TYPES,
      primaryType: "TransferWithAuthorization",
      message,
    });
    const args = [...Object.values(message), signature];
    return encodeFunctionData({ abi, functionName: "transferWithAuthorization", args });
  };
  const gasOf = async (to: Hex, data: Hex): Promise<number> => {
    const hash = await chain.walletClient(chain.relayer).sendTransaction({ to, data });
    const receipt = await chain.publicClient.waitForTransactionReceipt({ hash });
    t.equal(receipt.status, "success");
    return Number(receipt.gasUsed);
  };
  const [first, ...others] = await Promise.all(payers.map(settlement));
  const alone = await gasOf(chain.usdc, first as Hex);
  const batch = await gasOf(
    MULTICALL3,
    encodeFunctionData({
      abi: multicall3Abi,
      functionName: "aggregate3",
      args: [others.map((callData) => ({ target: chain.usdc, allowFailure: true, callData }))],
    }),
  );
  t.comment(`alone ${alone}, in a batch of 100: ${Math.round(batch / 100)} each`);
  t.ok(alone > 60_000 && alone < 95_000, `alone: ${alone}, real USDC about 81,000`);
  t.ok(batch / 100 <= 49_500, `batched: ${batch / 100}`);
});
