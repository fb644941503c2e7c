import { Purser, PurserError } from "purser";

const purser = new Purser({
  apiKey: process.env.AGENT_API_KEY ?? "",
  baseUrl: process.env.PURSER_URL ?? "http://localhost:3000",
});
const { balance, limits } = await purser.me();
console.log(`I hold ${balance} USDC and can pay ${limits.available} now (${limits.boundBy}).`);

const { items } = await purser.listings({ search: "statistics", maxPrice: "0.01" });
try {
  const { data, amountPaid, txHash } = await purser.fetch({ listingId: items[0]?.id });
  console.log(`Paid ${amountPaid} USDC (${txHash}) for`, data);
} catch (error) {
  if (!(error instanceof PurserError)) throw error;
  // A refusal names the rule, and the time at which the amount fits again.
  console.log(error.code, error.message, error.problem.availableAt);
}
