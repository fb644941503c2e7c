// Goal: every invalid payment gets status 200 and the protocol's own reason code.
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp } from "../helpers/app.ts";
import { post, signedPayment, type Payment } from "./payments.ts";

t.test("verify", async (t) => {
  const { app, chain } = await testApp(t);
  const payer = privateKeyToAccount(generatePrivateKey());
  await chain.mint(payer.address, 10_000_000n);
  const payTo = chain.accounts[0]?.address ?? payer.address;
  const now = Math.floor(Date.now() / 1000);
  const make = (change: Partial<Payment> = {}) => signedPayment({ chain, payer, payTo, ...change });

  await t.test("a good payment is valid", async (t) => {
    const answer = await post(app, "verify", await make());
    t.same(answer, { isValid: true, payer: payer.address, amount: "1000" });
  });

  const wrong: [string, Partial<Payment>, string][] = [
    ["recipient", { signedTo: chain.admin.address }, "invalid_exact_evm_recipient_mismatch"],
    ["amount", { value: "999" }, "invalid_exact_evm_payload_authorization_value_mismatch"],
    [
      "expired",
      { validBefore: String(now + 3) },
      "invalid_exact_evm_payload_authorization_valid_before",
    ],
    [
      "too early",
      { validAfter: String(now + 60) },
      "invalid_exact_evm_payload_authorization_valid_after",
    ],
    [
      "signer",
      { signer: privateKeyToAccount(generatePrivateKey()) },
      "invalid_exact_evm_signature",
    ],
    ["signed for another chain", { signedChainId: 1 }, "invalid_exact_evm_signature"],
    [
      "domain name",
      { domainName: "GatewayWalletBatched", signedName: "GatewayWalletBatched" },
      "invalid_exact_evm_token_name_mismatch",
    ],
    [
      "domain version",
      { domainVersion: "3", signedVersion: "3" },
      "invalid_exact_evm_token_version_mismatch",
    ],
    ["balance", { amount: "10000001" }, "invalid_exact_evm_insufficient_balance"],
    ["network", { network: "eip155:1" }, "invalid_network"],
    ["scheme", { scheme: "stream" }, "unsupported_scheme"],
    ["asset without code", { asset: payTo }, "asset_not_deployed_contract"],
    [
      "asset that is no token",
      { asset: "0xcA11bde05977b3631167028862bE2a173976CA11" },
      "invalid_exact_evm_eip3009_not_supported",
    ],
  ];
  for (const [name, change, reason] of wrong) {
    await t.test(`wrong ${name}`, async (t) => {
      const answer = await post(app, "verify", await make(change));
      t.equal(answer["isValid"], false);
      t.equal(answer["invalidReason"], reason);
      t.ok(answer["invalidMessage"]);
      t.equal(answer["error"], answer["invalidMessage"]);
      t.equal(answer["payer"], payer.address);
    });
  }
});
