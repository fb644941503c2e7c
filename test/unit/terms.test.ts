// Goal: whatever a seller writes into its terms, we pay only plain EIP-3009 USDC to a valid payee, or nothing.
import t from "tap";
import { encodePaymentRequiredHeader } from "@x402/core/http";
import type { PaymentRequired } from "@x402/core/types";
import type { Address } from "viem";
import { chooseTerms } from "../../server/plugins/x402-client/choose.ts";
import { parseOffer } from "../../server/plugins/x402-client/ask.ts";
import { ARC, BASE_SEPOLIA as BASE, PAYEE } from "./payment-samples.ts";

const WALLET: Address = "0x70997970c51812dc3a010c7d01b50e0d17dc79c8";

const entry = (over: Record<string, unknown> = {}): Record<string, unknown> => ({
  scheme: "exact",
  network: ARC.id,
  amount: "1000",
  asset: ARC.usdc.address,
  payTo: PAYEE,
  maxTimeoutSeconds: 60,
  extra: { name: "USDC", version: "2" },
  ...over,
});
const header = (accepts: unknown, over: object = {}): string =>
  encodePaymentRequiredHeader({
    x402Version: 2,
    resource: { url: "https://seller.example/" },
    accepts,
    ...over,
  } as unknown as PaymentRequired);

function choose(...accepts: unknown[]) {
  const parsed = parseOffer(header(accepts), Buffer.alloc(0));
  if (!parsed.ok) return { invalid: parsed.reason };
  const choice = chooseTerms(parsed.offer, {
    networks: [ARC, BASE],
    wallet: WALLET,
    preferredNetwork: ARC.id,
  });
  return choice.ok
    ? {
        amount: choice.chosen.amountAtomic,
        network: choice.chosen.network.id,
        payTo: choice.chosen.payTo,
        validForSeconds: choice.chosen.validForSeconds,
      }
    : { reasons: choice.reasons };
}

t.test("the cheapest valid offer is paid", async (t) => {
  t.same(choose(entry()), {
    amount: 1000n,
    network: ARC.id,
    payTo: PAYEE.toLowerCase(),
    validForSeconds: 60,
  });
  t.match(choose(entry({ amount: "3" }), entry({ amount: "2" }), entry({ amount: "10" })), {
    amount: 2n,
  });
  const onBase = entry({ network: BASE.id, asset: BASE.usdc.address, amount: "1000" });
  t.match(choose(onBase, entry()), { network: ARC.id }, "the agent's network wins a tie");
  t.match(choose(entry(), { ...onBase, amount: "999" }), { network: BASE.id }, "price comes first");
  t.match(choose(entry({ scheme: "upto", amount: "1" }), entry()), { amount: 1000n });
  t.match(choose({ nonsense: true }, entry()), { amount: 1000n }, "a broken entry spoils nothing");
  t.match(choose(entry({ extra: null })), { amount: 1000n }, "extra may be missing");
  t.match(choose(entry({ payTo: PAYEE.toLowerCase() })), { amount: 1000n });
  t.match(choose(entry({ maxTimeoutSeconds: 1e12 })), { validForSeconds: 120 });
  t.match(choose(entry({ maxTimeoutSeconds: 30.9 })), { validForSeconds: 30 });
});

t.test("unsupported offers are refused", async (t) => {
  const cases: Record<string, Record<string, unknown>> = {
    "another scheme": { scheme: "upto" },
    "another network": { network: "eip155:1" },
    "another chain's family": { network: "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp" },
    "another asset": { asset: "0x036CbD53842c5426634e7929541eC2318f3dCF7e" },
    "amount 0": { amount: "0" },
    "a negative amount": { amount: "-1" },
    "an exponent": { amount: "1e6" },
    "a decimal amount": { amount: "1.5" },
    "a hexadecimal amount": { amount: "0x10" },
    "an amount with blanks": { amount: " 1" },
    "2^256": { amount: (1n << 256n).toString() },
    "an endless amount": { amount: "9".repeat(100) },
    "the zero payee": { payTo: "0x0000000000000000000000000000000000000000" },
    "the token as payee": { payTo: ARC.usdc.address },
    "the wallet as payee": { payTo: WALLET },
    "a payee that is none": { payTo: "vitalik.eth" },
    "a payee with a wrong checksum": { payTo: PAYEE.replace("C44C", "c44c") },
    GatewayWalletBatched: { extra: { name: "GatewayWalletBatched", version: "1" } },
    "another version": { extra: { name: "USDC", version: "1" } },
    "another contract": { extra: { name: "USDC", version: "2", verifyingContract: PAYEE } },
    "another chain id": { extra: { name: "USDC", version: "2", chainId: 1 } },
    "other decimals": { extra: { name: "USDC", version: "2", decimals: 18 } },
    "another method": { extra: { name: "USDC", version: "2", assetTransferMethod: "erc7710" } },
    "a name that is an object": { extra: { name: { toString: "USDC" } } },
    "no time": { maxTimeoutSeconds: 0.5 },
  };
  for (const [label, over] of Object.entries(cases)) {
    const result = choose(entry(over));
    t.ok(
      "reasons" in result && result.reasons?.length === 1,
      `${label}: ${JSON.stringify(result, (_key, value: unknown) => (typeof value === "bigint" ? String(value) : value))}`,
    );
  }
});

t.test("an invalid 402 response is refused", async (t) => {
  const empty = Buffer.alloc(0);
  const invalid = (given: string | string[] | undefined, body = empty): boolean =>
    !parseOffer(given, body).ok;
  t.ok(invalid(undefined), "nothing at all");
  t.ok(invalid("!!! not base64"));
  t.ok(invalid(Buffer.from("not json").toString("base64")));
  t.ok(invalid(Buffer.from("[]").toString("base64")));
  t.ok(invalid(Buffer.from("null").toString("base64")));
  t.ok(invalid([header([entry()]), header([entry()])]), "the header twice");
  t.ok(invalid(header([])), "accepts nothing");
  t.ok(invalid(header("everything")));
  t.ok(invalid(header([entry()], { x402Version: 1 })));
  t.ok(invalid(header([entry()], { x402Version: 3 })));
  t.ok(invalid(header([entry({ maxTimeoutSeconds: -5 })])), "a negative time");
  t.ok(invalid(header([entry({ amount: 1000 })])), "an amount that is a number");
  t.ok(invalid(header(Array.from({ length: 1000 }, () => entry()))), "a thousand entries");
  t.ok(invalid(undefined, Buffer.from("<html>pay me</html>")));
  t.ok(invalid(undefined, Buffer.from(JSON.stringify({ x402Version: 2, accepts: [entry()] }))));
});

t.test("version 1 is read from the body, with its own names", async (t) => {
  const { amount, ...rest } = entry({ network: "base-sepolia", asset: BASE.usdc.address });
  const terms = {
    ...rest,
    maxAmountRequired: amount,
    resource: "https://seller.example/",
    description: "",
    mimeType: "",
  };
  const body = Buffer.from(JSON.stringify({ x402Version: 1, error: "pay", accepts: [terms] }));
  const parsed = parseOffer(undefined, body);
  t.ok(parsed.ok);
  if (!parsed.ok) return;
  const choice = chooseTerms(parsed.offer, {
    networks: [ARC, BASE],
    wallet: WALLET,
    preferredNetwork: undefined,
  });
  t.match(choice, { ok: true, chosen: { amountAtomic: 1000n, network: { id: BASE.id } } });
  t.same(parsed.offer.accepts[0]?.raw, terms, "the entry is kept as it was written");
  t.match(
    parseOffer(header([entry()]), body),
    { ok: true, offer: { x402Version: 2 } },
    "the header comes first",
  );
  t.notOk(parseOffer("broken!", body).ok, "the body does not replace a broken header");
});
