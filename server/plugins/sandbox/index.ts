/**
 * Paid APIs for trying an agent out, in local mode only: one with a fixed price, one that is charged by use, and one
 * that fails after the payment.
 */
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { Type } from "typebox";
import { Value } from "typebox/value";
import type { PaywallRoute } from "../../../packages/paywall/src/paywall.ts";
import { formatAtomic } from "../../core/money.ts";
import { ApiError } from "../../errors.ts";
import { PaymentRequiredAnswer } from "../../schemas/common.ts";

const PRICE_PER_WORD_ATOMIC = 1_000n;
const MAX_WORDS = 50;
const WORDS = ["amber", "brook", "cedar", "delta", "ember", "fjord", "grove", "heath"];

const DEFAULT_WORDS = String(WORDS.length);
const WordCount = Type.String({
  pattern: "^([1-9]|[1-4][0-9]|50)$",
  description: `Default ${DEFAULT_WORDS}`,
});

const Forecast = Type.Object({ city: Type.String(), celsius: Type.Integer(), sky: Type.String() });
const FORECAST = { city: "Lisbon", celsius: 21, sky: "clear" };

const routes: FastifyPluginAsyncTypebox = async (app) => {
  if (!app.config.local) return;
  const { network } = app.chains.default;
  const sold = (what: Pick<PaywallRoute, "price" | "description">): PaywallRoute => ({
    ...what,
    networks: [network.id],
    mimeType: "application/json",
    serviceName: "Sandbox",
    tags: ["sandbox"],
  });

  const weather = sold({ price: "0.01", description: "Sandbox: a forecast at a fixed price" });
  app.get(
    "/api/sandbox/weather",
    {
      config: { auth: "public", paywall: weather },
      schema: {
        hide: true,
        response: { 200: Forecast, 402: PaymentRequiredAnswer },
      },
    },
    async () => FORECAST,
  );

  const priceOfWords = (count: string): bigint => {
    const price = PRICE_PER_WORD_ATOMIC * BigInt(count);
    return price < app.config.minPaymentAtomic ? 0n : price;
  };
  const words = sold({
    price: {
      upTo: formatAtomic(PRICE_PER_WORD_ATOMIC * BigInt(MAX_WORDS)),
      // For payers that cannot sign a maximum, such as a person on the pay page.
      fixed({ url }) {
        const count = new URL(url).searchParams.get("count") ?? DEFAULT_WORDS;
        const price = Value.Check(WordCount, count) ? priceOfWords(count) : 0n;
        return price === 0n ? undefined : formatAtomic(price);
      },
    },
    description: "Sandbox: words, charged by the word",
  });
  app.get(
    "/api/sandbox/words",
    {
      config: { auth: "public", paywall: words },
      schema: {
        hide: true,
        querystring: Type.Object({
          count: Type.Optional(WordCount),
        }),
        response: {
          200: Type.Object({ words: Type.Array(Type.String()) }),
          402: PaymentRequiredAnswer,
        },
      },
    },
    async (request) => {
      const { count = DEFAULT_WORDS } = request.query;
      request.payment?.charge(priceOfWords(count));
      const length = Number(count);
      return { words: Array.from({ length }, (_, index) => WORDS[index % WORDS.length] ?? "") };
    },
  );

  const broken = sold({ price: "0.002", description: "Sandbox: takes the payment, then fails" });
  app.get(
    "/api/sandbox/broken",
    {
      config: { auth: "public", paywall: broken, errors: ["upstream_error"] },
      schema: {
        hide: true,
        response: { 200: Forecast, 402: PaymentRequiredAnswer },
      },
    },
    async () => {
      throw new ApiError("upstream_error", {
        detail: "This sandbox seller always fails after the payment.",
        // The usual one says that nothing was paid.
        extra: { retryable: false, suggestion: "Use another seller: this one never delivers." },
      });
    },
  );

  for (const [name, paywall, sample] of [
    ["weather", weather, JSON.stringify(FORECAST)],
    ["words", words, JSON.stringify({ words: WORDS })],
    ["broken", broken, ""],
  ] as const) {
    const path = `/api/sandbox/${name}`;
    const url = `${app.config.publicUrl}${path}`;
    app.listings.addBuiltIn({
      key: `sandbox-${name}:${network.id}`,
      name: `Sandbox ${name}`,
      description: paywall.description ?? "",
      category: "sandbox",
      url,
      method: "GET",
      sample,
      terms: () => app.cashier.required(paywall, { method: "GET", url, path, headers: {} }),
    });
  }
};

export default routes;
