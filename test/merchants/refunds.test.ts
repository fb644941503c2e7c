// Goal: a settlement is refunded only with its payee's signature, once, to its payer, and never more than was
// settled.
import t from "tap";
import { keccak256, parseAbi, stringToHex, type Hex } from "viem";
import { post, signedPayment } from "../facilitator/payments.ts";
import { TRANSFER_TYPES } from "../helpers/eip3009.ts";
import { permit2Payment } from "../facilitator/permit2-payments.ts";
import { change } from "../facilitator/bent-payments.ts";
import { deployWallet } from "../facilitator/wallets.ts";
import { expectGasIsAccounted } from "../helpers/engine-invariants.ts";
import { freshNonce, signIn, siweMessage, verify } from "../helpers/owner.ts";
import { approvePermit2 } from "../helpers/permit2.ts";
import { testApp } from "../helpers/app.ts";
import { until } from "../helpers/until.ts";
import {
  send,
  balanceOf,
  merchantWorld,
  newAccount,
  pay,
  refund,
  refundUrl,
  signedRefund,
  type Owner,
} from "./world.ts";

const usdc = 1_000_000n;
const TRANSFER = parseAbi([
  "function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes signature)",
]);
const TOKEN = parseAbi(["function blacklist(address)", "function unBlacklist(address)"]);

t.test("refunds", async (t) => {
  const ctx = await merchantWorld(t);
  const other = await testApp(t, { database: ctx.database, chain: ctx.chain });
  const { app, chain, database, merchant, payer } = ctx;
  const payTo = merchant.account.address;
  const tokenCall = async (functionName: "blacklist" | "unBlacklist", account: Hex) => {
    const hash = await chain
      .walletClient(chain.admin)
      .writeContract({ address: chain.usdc, abi: TOKEN, functionName, args: [account] });
    await chain.publicClient.waitForTransactionReceipt({ hash });
  };
  const detailOf = async (id: string) =>
    (await send(ctx, merchant, "GET", `/api/merchant/settlements/${id}`)).body as {
      refunded: string;
      refundable: string;
      refunds: { status: string; amount: string; txHash: string }[];
    };

  await t.test("refunded in full, once, however often and from wherever it is sent", async (t) => {
    const id = await pay(ctx, payTo);
    const [merchantBefore, payerBefore] = [
      await balanceOf(ctx, payTo),
      await balanceOf(ctx, payer.address),
    ];
    const authorization = await signedRefund(ctx, merchant, id);
    const again = await signedRefund(ctx, merchant, id);
    t.equal(
      again.order["nonce"],
      authorization.order["nonce"],
      "a double click signs the same transfer",
    );
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        send(index % 2 === 0 ? ctx : other, merchant, "POST", refundUrl(id), {
          authorization: index % 4 === 3 ? again : authorization,
        }),
      ),
    );
    t.same([...new Set(answers.map(({ status }) => status))], [200], JSON.stringify(answers));
    t.equal(new Set(answers.map(({ body }) => body["txHash"])).size, 1, "one transaction");
    t.match(answers[0]?.body, {
      status: "settled",
      amount: "1",
      payer: payer.address,
      final: true,
    });
    t.equal(await balanceOf(ctx, payTo), merchantBefore - usdc);
    t.equal(await balanceOf(ctx, payer.address), payerBefore + usdc);
    t.match(await detailOf(id), { refunded: "1", refundable: "0", refunds: [{ amount: "1" }] });
    t.match(await send(ctx, merchant, "POST", refundUrl(id), {}), {
      status: 409,
      body: { code: "not_refundable", refundable: "0" },
    });
    const settled = await post(app, "settle", {
      ...(await signedPayment({
        chain,
        payer: merchant.account,
        payTo: payer.address,
        amount: "1000000",
        nonce: authorization.order["nonce"] as Hex,
        validBefore: String(authorization.order["validBefore"]),
      })),
    });
    t.match(
      settled,
      { success: false, errorReason: "duplicate_settlement" },
      "it cannot be used as a payment",
    );
  });

  await t.test("20 different parallel refunds never exceed the settled amount", async (t) => {
    const id = await pay(ctx, payTo);
    await chain.mint(payTo, 20n * usdc);
    const payerBefore = await balanceOf(ctx, payer.address);
    const { rows } = await database.pool.query<{
      chain_id: bigint;
      asset: string;
      from_address: string;
      nonce: string;
    }>("SELECT chain_id, asset, from_address, nonce FROM settlements WHERE id = $1", [id]);
    const key = rows[0];
    if (!key) throw new Error("no settlement");
    const nonceOf = (number: number): Hex =>
      keccak256(
        stringToHex(
          `purser refund ${key.chain_id} ${key.asset} ${key.from_address} ${key.nonce} ${number}`,
        ),
      );
    const first = await signedRefund(ctx, merchant, id, "0.3");
    t.equal(first.order["nonce"], nonceOf(0), "derived from the settlement's key");
    const signed = await Promise.all(
      Array.from({ length: 20 }, async (_, number) => {
        const order = { ...first.order, nonce: nonceOf(number) };
        return { order, signature: await signTransfer(merchant, order) };
      }),
    );
    const statuses: number[] = [];
    for (let round = 0; round < 3 || statuses.slice(-20).includes(503); round += 1) {
      const answers = await Promise.all(
        signed.map((authorization, index) =>
          send(index % 2 === 0 ? ctx : other, merchant, "POST", refundUrl(id), { authorization }),
        ),
      );
      statuses.push(...answers.map(({ status }) => status));
    }
    t.same(
      // 503 on a busy machine: the same request is sent again.
      statuses.filter((status) => ![200, 409, 503].includes(status)),
      [],
    );
    t.equal(await balanceOf(ctx, payer.address), payerBefore + 900_000n, "three times 0.3 of 1");
    t.match(await detailOf(id), { refunded: "0.9", refundable: "0.1" });
    t.match(await send(ctx, merchant, "POST", refundUrl(id), { amount: "0.11" }), {
      status: 409,
      body: { code: "not_refundable", refundable: "0.1" },
    });
    t.equal((await refund(ctx, merchant, id)).status, 200, "the rest");
    t.match(await detailOf(id), { refunded: "1", refundable: "0" });
  });

  await t.test("two processes that check at the same moment", async (t) => {
    const id = await pay(ctx, payTo);
    const payerBefore = await balanceOf(ctx, payer.address);
    const first = await signedRefund(ctx, merchant, id, "0.6");
    const { rows } = await database.pool.query<{ key: string }>(
      "SELECT concat_ws(' ', chain_id, asset, from_address, nonce) AS key FROM settlements WHERE id = $1",
      [id],
    );
    // Skips a number, so that these are two transfers and no unique key prevents one of them.
    const next = {
      ...first.order,
      nonce: keccak256(stringToHex(`purser refund ${rows[0]?.key} 1`)),
    };
    const second = { order: next, signature: await signTransfer(merchant, next) };
    for (const { app: each } of [ctx, other])
      each.refundFaults.at = (point) =>
        new Promise((resolve) => setTimeout(resolve, point === "locked" ? 500 : 0));
    const answers = await Promise.all([
      send(ctx, merchant, "POST", refundUrl(id), { authorization: first }),
      send(other, merchant, "POST", refundUrl(id), { authorization: second }),
    ]);
    for (const { app: each } of [ctx, other]) delete each.refundFaults.at;
    const statuses = answers.map(({ status }) => status);
    t.same(
      statuses.toSorted((a, b) => a - b),
      [200, 409],
      JSON.stringify(answers),
    );
    t.equal(await balanceOf(ctx, payer.address), payerBefore + 600_000n, "only one of them");
  });

  await t.test("relayed by the merchant itself in parallel: it counts as refunded", async (t) => {
    const id = await pay(ctx, payTo);
    const payerBefore = await balanceOf(ctx, payer.address);
    const authorization = await signedRefund(ctx, merchant, id);
    const relay = async () => {
      const { from, to, value, validAfter, validBefore, nonce } = authorization.order as Record<
        string,
        Hex
      >;
      const hash = await chain.walletClient(chain.admin).writeContract({
        address: chain.usdc,
        abi: TRANSFER,
        functionName: "transferWithAuthorization",
        args: [
          from as Hex,
          to as Hex,
          BigInt(value ?? 0),
          BigInt(validAfter ?? 0),
          BigInt(validBefore ?? 0),
          nonce as Hex,
          authorization.signature,
        ],
      });
      await chain.publicClient.waitForTransactionReceipt({ hash });
    };
    app.refundFaults.at = async (point) => (point === "locked" ? relay() : undefined);
    await send(ctx, merchant, "POST", refundUrl(id), { authorization });
    delete app.refundFaults.at;
    await until(async () => (await detailOf(id)).refunds[0]?.status === "settled", 20_000);
    t.match(await detailOf(id), { refunded: "1", refundable: "0" });
    t.equal(await balanceOf(ctx, payer.address), payerBefore + 1_000_000n, "once");

    await t.test("also when the ledger was set back", async (t) => {
      await database.pool.query("DELETE FROM refunds WHERE settlement_id = $1", [id]);
      t.match(await detailOf(id), { refundable: "1" }, "the refund is lost from the ledger");
      t.match(await send(ctx, merchant, "POST", refundUrl(id), {}), {
        status: 409,
        body: { code: "refund_changed", detail: /this ledger does not have/ },
      });
      t.equal(await balanceOf(ctx, payer.address), payerBefore + 1_000_000n);
    });
  });

  await t.test("wrong signer, recipient, time or amount", async (t) => {
    const id = await pay(ctx, payTo);
    const { order, signature } = await signedRefund(ctx, merchant, id);
    const sendRefund = (authorization: object, more: object = {}) =>
      send(ctx, merchant, "POST", refundUrl(id), { authorization, ...more });
    const thirdParty = { account: newAccount(), headers: {} };
    const refused = async (bent: Record<string, string>, by: Owner = merchant) => {
      const changed = { ...order, ...bent };
      const { status, body } = await sendRefund({
        order: changed,
        signature: await signTransfer(by, changed),
      });
      return `${status} ${String(body["code"])}`;
    };
    t.equal(await refused({}, thirdParty), "401 invalid_signature");
    t.equal(
      await refused({ from: thirdParty.account.address }, thirdParty),
      "401 invalid_signature",
    );
    t.equal(await refused({ to: newAccount().address }), "422 validation_failed");
    t.equal(await refused({ nonce: `0x${"7".repeat(64)}` }), "409 refund_changed");
    t.equal(await refused({ value: "1000001" }), "409 not_refundable");
    t.equal(await refused({ value: "0" }), "422 invalid_amount");
    t.equal(await refused({ value: "1" }), "403 amount_below_floor");
    const now = Math.floor(Date.now() / 1000);
    t.equal(await refused({ validBefore: String(now - 1) }), "422 signature_expired");
    t.equal(await refused({ validBefore: String(now + 3_600) }), "422 validation_failed");
    t.match(await sendRefund({ order: { ...order, value: "500000" }, signature }), {
      body: { code: "invalid_signature" },
    });
    t.match(await sendRefund({ order, signature }, { amount: "0.5" }), {
      body: { code: "invalid_amount" },
    });
    t.match(await send(ctx, merchant, "POST", refundUrl(id), { amount: "1e3" }), {
      body: { code: "invalid_amount" },
    });
    const { rows } = await database.pool.query("SELECT 1 FROM refunds WHERE settlement_id = $1", [
      id,
    ]);
    t.equal(rows.length, 0, "nothing was reserved");
    t.equal((await sendRefund({ order, signature })).status, 200, "the valid one is accepted");
    const half = { ...order, value: "500000" };
    t.match(
      await sendRefund({ order: half, signature: await signTransfer(merchant, half) }),
      { body: { code: "refund_changed" } },
      "the same nonce with another amount",
    );
  });

  await t.test("an empty wallet, a token that refuses, and a blocked payer", async (t) => {
    const poor = await signIn(ctx);
    const id = await pay(ctx, poor.account.address);
    const authorization = await signedRefund(ctx, poor, id);
    await pay({ ...ctx, payer: poor.account }, newAccount().address);
    t.match(await send(ctx, poor, "POST", refundUrl(id), { authorization }), {
      status: 402,
      body: { code: "insufficient_funds", fundingAddress: poor.account.address },
    });
    await chain.mint(poor.account.address, usdc);
    await tokenCall("blacklist", payer.address);
    t.match(await send(ctx, poor, "POST", refundUrl(id), { authorization }), {
      status: 422,
      body: { code: "refund_refused" },
    });
    await tokenCall("unBlacklist", payer.address);
    t.equal((await send(ctx, poor, "POST", refundUrl(id), { authorization })).status, 200);
  });

  await t.test("without gas: refused with its own code, and nothing is reserved", async (t) => {
    const id = await pay(ctx, payTo);
    const authorization = await signedRefund(ctx, merchant, id);
    const setLimit = (perDay: string) =>
      database.pool.query("UPDATE gas_limits SET per_day = $1 WHERE name = 'payer'", [perDay]);
    await setLimit("1");
    const refused = await send(ctx, merchant, "POST", refundUrl(id), { authorization });
    await setLimit("10000000000000000000");
    t.match(refused, { status: 429, body: { code: "gas_budget_exhausted" } });
    t.match(await detailOf(id), { refunded: "0", refundable: "1" });
    t.equal((await send(ctx, merchant, "POST", refundUrl(id), { authorization })).status, 200);
  });

  await t.test("the merchant is notified in the same transaction", async (t) => {
    await database.pool.query(
      `INSERT INTO webhooks (id, owner_id, url, types, secret, secret_kid, secret_hint, retry_at)
       SELECT 'whk_' || repeat('a', 26), o.id, 'https://hooks.example/', '{refund.settled,refund.failed}', '', 'test', '',
              now() + interval '1 day' FROM owners o WHERE o.address = $1`,
      [payTo.toLowerCase()],
    );
    const id = await pay(ctx, payTo);
    const { body } = await refund(ctx, merchant, id, "0.4");
    const { rows } = await database.pool.query(
      "SELECT type, subject_id, data FROM notifications WHERE type LIKE 'refund.%' AND subject_id = $1",
      [body["id"]],
    );
    t.match(rows, [
      {
        type: "refund.settled",
        subject_id: body["id"],
        data: { settlementId: id, amount: "0.4", txHash: body["txHash"], status: "settled" },
      },
    ]);
    t.equal(rows.length, 1);
    await database.pool.query("DELETE FROM webhooks");
  });

  await t.test("only final settlements can be refunded", async (t) => {
    const id = await pay(ctx, payTo);
    await database.pool.query("UPDATE settlements SET final_at = NULL WHERE id = $1", [id]);
    t.match(await send(ctx, merchant, "POST", refundUrl(id), {}), {
      status: 409,
      body: { code: "settlement_not_final", retryable: true },
    });
    await database.pool.query("UPDATE settlements SET final_at = now() WHERE id = $1", [id]);
    const authorization = await signedRefund(ctx, merchant, id);
    await database.pool.query("UPDATE settlements SET final_at = NULL WHERE id = $1", [id]);
    t.match(
      await send(ctx, merchant, "POST", refundUrl(id), { authorization }),
      { status: 409, body: { code: "not_refundable" } },
      "also if it was final when the order was prepared",
    );
  });

  await t.test("Permit2 payments, and the charged part of a maximum", async (t) => {
    await approvePermit2(chain, [payer]);
    const exact = await permit2Payment({ chain, payer, payTo, amount: 700_000n });
    const first = await post(app, "settle", exact);
    t.equal((await refund(ctx, merchant, String(first["paymentId"]))).status, 200);
    const facilitator = chain.relayer.address;
    const upto = await permit2Payment({ chain, payer, payTo, facilitator, amount: 900_000n });
    const charged = await post(app, "settle", change(upto, "paymentRequirements.amount", "250000"));
    const id = String(charged["paymentId"]);
    t.match(await send(ctx, merchant, "GET", `/api/merchant/settlements/${id}`), {
      body: { scheme: "upto", amount: "0.25", maximum: "0.9", refundable: "0.25" },
    });
    t.match(await send(ctx, merchant, "POST", refundUrl(id), { amount: "0.26" }), {
      body: { code: "not_refundable" },
    });
    t.match(await refund(ctx, merchant, id), { status: 200, body: { amount: "0.25" } });
  });

  await t.test("a contract account refunds on its own chain", async (t) => {
    const key = newAccount();
    const wallet = await deployWallet(chain, key.address, "Honest");
    const message = siweMessage(ctx, { nonce: await freshNonce(app), address: wallet });
    const entered = await verify(ctx, { message, signature: await key.signMessage({ message }) });
    const [cookie = ""] = [entered.headers["set-cookie"]].flat();
    const owner: Owner = {
      account: key,
      headers: { ...merchant.headers, cookie: cookie.split(";", 1)[0] ?? "" },
    };
    const id = await pay(ctx, wallet);
    const payerBefore = await balanceOf(ctx, payer.address);
    t.match(
      await send(ctx, owner, "POST", refundUrl(id), {
        authorization: {
          ...(await signedRefund(ctx, owner, id)),
          signature: `0x${"11".repeat(65)}`,
        },
      }),
      { status: 401, body: { code: "invalid_signature" } },
    );
    t.match(await refund(ctx, owner, id), { status: 200, body: { status: "settled" } });
    t.equal(await balanceOf(ctx, payer.address), payerBefore + usdc);
  });

  await t.test("its gas is charged to the merchant and accounted for", async (t) => {
    const { rows } = await database.pool.query<{ gas_accounts: string[] }>(
      "SELECT gas_accounts FROM settlements WHERE kind = 'refund' AND from_address = $1 LIMIT 1",
      [payTo.toLowerCase()],
    );
    t.same(rows[0]?.gas_accounts, [
      `payee:${payer.address.toLowerCase()}`,
      `payer:${payTo.toLowerCase()}`,
      "strangers",
    ]);
    await expectGasIsAccounted(t, database.pool);
  });
});

/** Signs like a wallet, whatever the content. */
async function signTransfer(by: Owner, order: Record<string, string>): Promise<Hex> {
  const { from, to, value, validAfter, validBefore, nonce } = order;
  return by.account.signTypedData({
    domain: {
      name: "USDC",
      version: "2",
      chainId: 5_042_002,
      verifyingContract: "0x3600000000000000000000000000000000000000",
    },
    types: TRANSFER_TYPES,
    primaryType: "TransferWithAuthorization",
    message: {
      from: from as Hex,
      to: to as Hex,
      value: BigInt(value ?? 0),
      validAfter: BigInt(validAfter ?? 0),
      validBefore: BigInt(validBefore ?? 0),
      nonce: nonce as Hex,
    },
  });
}
