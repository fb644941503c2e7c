// Goal: smart wallets pay like plain keys, undeployed ones verify, and a dishonest wallet costs no money and
// affects no other verdict.
import t from "tap";
import {
  hashTypedData,
  parseSignature,
  serializeCompactSignature,
  signatureToCompactSignature,
  type Address,
  type Hex,
} from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp } from "../helpers/app.ts";
import { change } from "./bent-payments.ts";
import { post, signedPayment, type Body } from "./payments.ts";
import { approveHash, deployWallet, futureWallet } from "./wallets.ts";
import type { TestChain } from "../helpers/chain.ts";
import { transferOf } from "../helpers/eip3009.ts";

const SIGNATURE = "paymentPayload.payload.signature";
const signatureOf = (body: Body): Hex =>
  (body.paymentPayload["payload"] as { signature: Hex }).signature;

function digestOf(chain: TestChain, body: Body): Hex {
  const { authorization } = body.paymentPayload["payload"] as {
    authorization: Parameters<typeof transferOf>[0];
  };
  return hashTypedData({
    domain: { name: "USDC", version: "2", chainId: chain.chainId, verifyingContract: chain.usdc },
    ...transferOf(authorization),
  });
}

t.test("smart wallets", async (t) => {
  const { app, chain } = await testApp(t);
  const owner = privateKeyToAccount(generatePrivateKey());
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const received = (): Promise<bigint> => chain.usdcOf(payTo);
  const from = (wallet: Address): Promise<Body> =>
    signedPayment({ chain, payer: owner, payTo, from: wallet });

  await t.test("a deployed wallet's payment settles", async (t) => {
    const wallet = await deployWallet(chain, owner.address, "Honest");
    await chain.mint(wallet, 5_000n);
    const body = await from(wallet);
    t.match(await post(app, "verify", body), { isValid: true, payer: wallet });
    t.match(await post(app, "settle", body), { success: true, payer: wallet });
    t.equal(await received(), 1_000n);
    t.match(await post(app, "settle", body), { errorReason: "duplicate_settlement" });
  });

  await t.test("a hash that the owner approved on chain settles", async (t) => {
    const wallet = await deployWallet(chain, chain.admin.address, "ApprovedHash");
    await chain.mint(wallet, 5_000n);
    const body = await from(wallet);
    const shown = await approveHash(chain, wallet, chain.admin, digestOf(chain, body));
    const approved = change(body, SIGNATURE, shown);
    const before = await received();
    t.match(await post(app, "verify", approved), { isValid: true, payer: wallet });
    t.match(await post(app, "settle", approved), { success: true, payer: wallet });
    t.equal(await received(), before + 1_000n);
    t.match(
      await post(app, "settle", change(await from(wallet), SIGNATURE, shown)),
      { success: false, errorReason: "invalid_exact_evm_signature" },
      "only for this hash",
    );
  });

  await t.test("a compact signature settles", async (t) => {
    await chain.mint(owner.address, 1_000n);
    const body = await signedPayment({ chain, payer: owner, payTo });
    const compact = serializeCompactSignature(
      signatureToCompactSignature(parseSignature(signatureOf(body))),
    );
    t.match(await post(app, "settle", change(body, SIGNATURE, compact)), { success: true });
    t.equal(await received(), 3_000n);
  });

  await t.test("an undeployed wallet is refused with an unknown factory", async (t) => {
    const wallet = await futureWallet(chain, owner.address);
    await chain.mint(wallet.address, 5_000n);
    const plain = await from(wallet.address);
    const body = change(plain, SIGNATURE, wallet.wrap(signatureOf(plain)));
    t.match(
      await post(app, "verify", body),
      { isValid: false, invalidReason: "eip6492_factory_not_allowed", payer: wallet.address },
      "verify returns the same reason as settle",
    );
    t.match(await post(app, "settle", body), {
      success: false,
      errorReason: "eip6492_factory_not_allowed",
      transaction: "",
    });
    t.equal(await received(), 3_000n);
  });

  await t.test("an undeployed wallet is deployed by an allowed factory", async (t) => {
    const wallet = await futureWallet(chain, owner.address);
    await chain.mint(wallet.address, 5_000n);
    const plain = await from(wallet.address);
    const body = change(plain, SIGNATURE, wallet.wrap(signatureOf(plain)));
    const allowing = await testApp(t, { chain, env: { ERC6492_FACTORIES: wallet.factory } });
    t.match(await post(allowing.app, "verify", body), { isValid: true });
    t.match(await post(allowing.app, "settle", body), { success: true, payer: wallet.address });
    t.equal(await received(), 4_000n);
    t.ok(await chain.publicClient.getCode({ address: wallet.address }), "the wallet was deployed");
    t.match(await post(allowing.app, "settle", body), { errorReason: "duplicate_settlement" });
    const gullible = await deployWallet(chain, owner.address, "Anything");
    await chain.mint(gullible, 5_000n);
    const innocent = await from(gullible);
    const nested = wallet.wrap((await futureWallet(chain, owner.address)).wrap("0x1234"));
    t.match(
      await post(allowing.app, "settle", change(innocent, SIGNATURE, nested)),
      { success: false, errorReason: "invalid_exact_evm_signature" },
      "a nested ERC-6492 envelope cannot hide another factory",
    );
    const poor = await futureWallet(chain, owner.address);
    const unpaid = await from(poor.address);
    const bad = change(unpaid, SIGNATURE, poor.wrap(signatureOf(unpaid)));
    t.match(await post(allowing.app, "settle", bad), {
      success: false,
      errorReason: "eip6492_factory_not_allowed",
    });
    await allowing.app.close();
  });

  await t.test("a wallet that accepts only in simulations moves no money", async (t) => {
    const wallet = await deployWallet(chain, owner.address, "TwoFaced");
    await chain.mint(wallet, 5_000n);
    const answer = await post(app, "settle", await from(wallet));
    t.match(answer, {
      success: false,
      // The engine's own simulation has a gas price like the transaction, so it fails and nothing is sent.
      errorReason: "invalid_exact_evm_signature",
      transaction: "",
    });
    t.equal(await received(), 4_000n);
  });

  await t.test("a wallet that burns gas affects no other verdict", async (t) => {
    const burner = await deployWallet(chain, owner.address, "BurnsAllGas");
    await chain.mint(burner, 5_000n);
    const good = privateKeyToAccount(generatePrivateKey());
    await chain.mint(good.address, 100_000n);
    const bodies = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        index % 2 === 0 ? from(burner) : signedPayment({ chain, payer: good, payTo }),
      ),
    );
    const answers = await Promise.all(bodies.map((body) => post(app, "verify", body)));
    t.same(
      answers.map(({ isValid }) => isValid),
      bodies.map((_, index) => index % 2 === 1),
    );
  });

  await t.test("payments of one payer, checked together, get separate verdicts", async (t) => {
    const payer = privateKeyToAccount(generatePrivateKey());
    const payee = privateKeyToAccount(generatePrivateKey());
    await chain.mint(payer.address, 1_000n);
    const bodies = await Promise.all([
      ...Array.from({ length: 5 }, () => signedPayment({ chain, payer, payTo: payee.address })),
      // Its balance would come only from the payments before it.
      signedPayment({ chain, payer: payee, payTo }),
    ]);
    const same = bodies[0];
    const answers = await Promise.all([...bodies, same].map((body) => post(app, "verify", body)));
    t.same(
      answers.map(({ isValid }) => isValid),
      [true, true, true, true, true, false, true],
    );
    t.equal(answers[5]?.["invalidReason"], "invalid_exact_evm_insufficient_balance");
  });
});
