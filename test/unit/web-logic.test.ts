// Goal: what the browser computes about money, rules, addresses and sign-in agrees with the server to the last digit.
import { assert, bigInt, property } from "fast-check";
import t from "tap";
import { getAddress } from "viem";
import { parseSiweMessage } from "viem/siwe";
import { formatAtomic, parseDecimal } from "../../server/core/money.ts";
import { checkAddress } from "../../web/src/lib/address.ts";
import {
  atomic,
  canonical,
  formatUsdc,
  parseUsdc,
  perMille,
  toDecimal,
} from "../../web/src/lib/money.ts";
import { siweMessage } from "../../web/src/lib/wallet/siwe.ts";
import { parseAllowlist } from "../../web/src/features/agents/parse-allowlist.ts";
import {
  checkRules,
  diffRules,
  EMPTY_RULES,
  requestFor,
  tellRules,
} from "../../web/src/features/agents/rules.ts";
import { testAccount } from "../helpers/chain.ts";

const amounts = bigInt({ min: 0n, max: 10n ** 45n });

t.test("money goes to the server and back without a change", async (t) => {
  assert(
    property(amounts, (value) => {
      const text = toDecimal(value);
      const there = parseDecimal(text);
      return (
        there.ok && there.atomic === value && formatAtomic(value) === text && atomic(text) === value
      );
    }),
  );
  assert(property(amounts, (value) => parseUsdc(formatUsdc(value).replaceAll(",", "")) === value));
  t.equal(formatUsdc(1_234_567_890_100n), "1,234,567.8901");
  t.equal(formatUsdc(0n), "0.00");
  t.equal(perMille(999_999n, 1_000_000n), 999, "never rounded up to full");
  for (const [typed, sent] of [
    ["5.", "5"],
    [".5", "0.5"],
    ["007.10", "7.1"],
    [" 3 ", "3"],
  ] as const)
    t.equal(canonical(typed), sent);
  for (const wrong of ["", ".", "-1", "1e3", "1,5", "0x1", "1.2345678", "٣"])
    t.equal(parseUsdc(wrong), undefined, wrong);
});

t.test("addresses: any case that is right passes, a wrong checksum does not", async (t) => {
  const { address } = testAccount(1);
  const lower = await checkAddress(address.toLowerCase());
  t.same(lower, { ok: true, address });
  t.same(await checkAddress(` ${address} `), { ok: true, address });
  t.match(await checkAddress(address.replace(/[a-f]/, (letter) => letter.toUpperCase())), {
    ok: false,
  });
  t.match(await checkAddress("0x0000000000000000000000000000000000000000"), { ok: false });
  t.match(await checkAddress(address.slice(0, -1)), { ok: false });
});

t.test("a pasted list is read in every usual shape, and each bad line is named", async (t) => {
  const [first, second, third] = [testAccount(1), testAccount(2), testAccount(3)];
  const text = [
    first.address,
    `${second.address.toLowerCase()}, News; daily`,
    `"Weather API"\t${third.address}`,
    `# ${testAccount(4).address} left out`,
    "",
    first.address.toLowerCase(),
    "0x1234",
    "nonsense",
  ].join("\r\n");
  const read = await parseAllowlist(text, []);
  t.same(read.entries, [
    { address: first.address, label: "" },
    { address: getAddress(second.address), label: "News; daily" },
    { address: third.address, label: "Weather API" },
  ]);
  t.equal(read.repeated, 1);
  t.same(
    read.problems.map(({ line }) => line),
    [7, 8],
  );
  const again = await parseAllowlist(first.address, [{ address: first.address, label: "" }]);
  t.match(again, { entries: [], repeated: 1 });
});

t.test("rules are told as they are, and only what changed is sent", async (t) => {
  const payee = { address: testAccount(1).address, label: "Weather API" };
  const before = { ...EMPTY_RULES, name: "a", dailyLimit: "5", allowlist: [payee] };
  t.match(
    tellRules(before).join(" "),
    "at most 5.00 USDC in any 24 hours, to 1 address and nobody else",
  );
  t.match(tellRules({ ...before, allowlist: [] }).join(" "), "can pay nobody");
  t.match(tellRules({ ...before, dailyLimit: "0" }).join(" "), "can spend nothing");
  t.match(checkRules({ ...before, name: " ", dailyLimit: "x" }, 0), {
    name: /name/,
    dailyLimit: /amount/,
  });
  t.match(checkRules({ ...before, perPaymentLimit: "6" }, 0), {
    perPaymentLimit: /more than the daily limit/,
  });
  t.same(requestFor(before, { ...before, dailyLimit: "5.00" }), {
    agent: undefined,
    allowlist: undefined,
  });
  const after = { ...before, dailyLimit: "7.50", perPaymentLimit: "1", allowlist: [] };
  t.same(requestFor(before, after), {
    agent: { dailyLimit: "7.5", perPaymentLimit: "1" },
    allowlist: [],
  });
  t.same(
    diffRules(before, after).map(({ what }) => what),
    ["Daily limit", "Limit per payment", "Payee removed"],
  );
  t.same(requestFor(after, before).agent, { dailyLimit: "5", perPaymentLimit: null });
});

t.test("the sign-in message is a proper EIP-4361 message", async (t) => {
  const { address } = testAccount(1);
  const nowMs = Date.UTC(2026, 0, 2, 3, 4, 5);
  const message = siweMessage({
    host: "purser.example:8443",
    origin: "https://purser.example:8443",
    address,
    chainId: 5042002,
    nonce: "a1b2c3d4e5f6a7b8",
    nowMs,
  });
  t.match(parseSiweMessage(message), {
    domain: "purser.example:8443",
    uri: "https://purser.example:8443",
    address,
    version: "1",
    chainId: 5042002,
    nonce: "a1b2c3d4e5f6a7b8",
    issuedAt: new Date(nowMs),
    expirationTime: new Date(nowMs + 600_000),
  });
});
