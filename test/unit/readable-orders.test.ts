// Goal: the texts that a wallet shows stand for exactly one order: each value has one text, another text is refused, and page,
// wallet and custody have the same characters.
import * as fc from "fast-check";
import t from "tap";
import { zeroAddress } from "viem";
import { AGENT_FIELDS, PAYEE_FIELDS } from "../../packages/rules/src/fields.ts";
import { SIGNED } from "../../packages/rules/src/kinds.ts";
import { orderIn } from "../../packages/rules/src/readable.ts";
import {
  approvalOrder,
  FORMS,
  formOf,
  keyOrder,
  orderDigest,
  orderInTypedData,
  policyOrder,
  typedDataOf,
  typesOf,
} from "../../server/core/orders.ts";
import { signedTextsOf } from "../helpers/settings.ts";
import { fieldsToSign } from "../../web/src/lib/orders/to-sign.ts";

const nonce = `0x${"ab".repeat(32)}` as const;
const single = { nonce, deadlineSeconds: 1_796_083_207n };
const policy = policyOrder({
  agentId: "agt_1",
  walletAddress: zeroAddress,
  version: 3,
  name: "research",
  rules: {
    dailyLimitAtomic: 25_000_000n,
    weeklyLimitAtomic: null,
    monthlyLimitAtomic: 1_234_567_891n,
    perPaymentLimitAtomic: 500_000n,
    paymentsPerHour: 10n,
    fetch: "sites",
    expiresAtSeconds: 1_796_083_200n,
    channelHeldAtomic: 0n,
    channelDelaySeconds: 21_600n,
    payees: [
      {
        address: zeroAddress,
        label: "shop",
        site: "",
        dailyLimitAtomic: null,
        perPaymentLimitAtomic: 1n,
        expiresAtSeconds: null,
        channelHeldAtomic: 0n,
      },
    ],
  },
  ...single,
});

t.test("what the wallet shows", async (t) => {
  const { message, domain, types } = typedDataOf("AgentPolicy", policy, 1, "readable");
  t.match(domain, { name: "Purser", version: "3" });
  t.match(message, {
    version: "3",
    dailyLimit: "25.00 USDC",
    weeklyLimit: "no limit",
    monthlyLimit: "1234.567891 USDC",
    perPaymentLimit: "0.50 USDC",
    paymentsPerHour: "10",
    fetch: "only the sites of its payees",
    expiresAt: "2026-12-01 00:00 UTC",
    channelHeld: "none",
    channelDelay: "6 hours",
    payees: [{ dailyLimit: "no limit", perPaymentLimit: "0.000001 USDC", expiresAt: "never" }],
    deadline: "2026-12-01 00:00:07 UTC",
  });
  const shown = fieldsToSign({ types, primaryType: "AgentPolicy", domain, message }, undefined);
  for (const [name, text] of Object.entries(message))
    if (typeof text === "string")
      t.match(
        shown.find((field) => field.name === name),
        { raw: text, plain: undefined },
        `the page shows ${name} as the wallet does`,
      );
  t.match(typedDataOf("AgentPolicy", policy, 1, "numbers").message, { dailyLimit: "25000000" });
  t.match(
    typedDataOf(
      "IssueKey",
      keyOrder({
        agentId: "a",
        walletAddress: zeroAddress,
        label: "k",
        expiresAtSeconds: null,
        ...single,
      }),
      1,
      "readable",
    ).message,
    { expiresAt: "never", deadline: "2026-12-01 00:00:07 UTC" },
  );
  t.match(
    typedDataOf(
      "ApprovePayment",
      approvalOrder({
        agentId: "a",
        payee: zeroAddress,
        asset: zeroAddress,
        maxAmountAtomic: 10n ** 30n,
        site: "",
        approvalId: "apr_1",
        ...single,
      }),
      1,
      "readable",
    ).message,
    { maxAmount: "1000000000000000000000000.00 USDC" },
  );
});

t.test("each value has one text, and is read from it", async (t) => {
  const edges = [0n, 1n, 59n, 60n, 86_399n, 253_402_300_799n, 253_402_300_800n, 2n ** 256n - 1n];
  const number = fc.oneof(
    fc.constantFrom(...edges),
    fc.bigInt(0n, 10n ** 13n),
    fc.bigInt(0n, 2n ** 256n - 1n),
  );
  for (const field of [...AGENT_FIELDS, ...PAYEE_FIELDS]) {
    const { name, kind } = field;
    const given =
      kind.type === "string" ? fc.constantFrom(...signedTextsOf(field)) : number.map(String);
    fc.assert(
      fc.property(given, given, (one, other) => {
        const [text, otherText] = [one, other].map((signed) =>
          kind.text(kind.readSigned(signed), SIGNED),
        );
        if ((text === otherText) !== (one === other))
          throw new Error(`${name}: ${one} and ${other} are ${text}`);
        const back = kind.readText(text ?? "");
        if (back === undefined || kind.sign(back) !== one)
          throw new Error(`${name}: ${text} is not ${one}`);
      }),
      { numRuns: 300 },
    );
  }
  t.pass();
});

t.test("an order in typed data is read back, and only in its one spelling", async (t) => {
  for (const form of FORMS) {
    const typed = typedDataOf("AgentPolicy", policy, 1, form);
    t.same(orderInTypedData("AgentPolicy", typed), policy);
    const digest = orderDigest("AgentPolicy", policy, 1, form);
    t.equal(formOf("AgentPolicy", policy, 1, digest), form);
    t.equal(formOf("AgentPolicy", policy, 2, digest), undefined, "another chain");
    t.equal(formOf("AgentPolicy", { ...policy, dailyLimit: "25000001" }, 1, digest), undefined);
  }
  const { message } = typedDataOf("AgentPolicy", policy, 1, "readable");
  const read = (change: object) =>
    orderIn(typesOf("AgentPolicy", policy), "AgentPolicy", { ...message, ...change });
  t.same(read({}), policy);
  const spellings = {
    dailyLimit: [
      "25 USDC",
      "25.0 USDC",
      "25.000 USDC",
      "025.00 USDC",
      "25.00 usdc",
      "25.00",
      "+25.00 USDC",
      "25,00 USDC",
      "2.5e1 USDC",
      "25.00 USDC ",
      "25.00\u00a0USDC",
      "２５.00 USDC",
      "25000000",
      "no limit",
      "",
    ],
    weeklyLimit: ["No limit", "none", "unlimited", "null", String(2n ** 256n - 1n)],
    paymentsPerHour: ["010", "10.0", "ten", "-1", "1e1"],
    fetch: ["sites", "any", "anything"],
    expiresAt: [
      "2026-12-01 00:00:00 UTC",
      "2026-12-01T00:00Z",
      "2026-12-01 00:00",
      "2026-12-01 01:00 +0100",
      "2026-12-1 00:00 UTC",
      "2026-13-01 00:00 UTC",
      "1796083200",
      "Never",
    ],
    channelHeld: ["0.00 USDC", "0", "no limit"],
    channelDelay: ["360 minutes", "21600", "6 hour", "6  hours", "0.25 days"],
  };
  for (const [name, texts] of Object.entries(spellings))
    for (const text of texts) t.equal(read({ [name]: text }), undefined, `${name}: ${text}`);
});
