import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { getAddress } from "viem";
import { privateKeyToAddress } from "viem/accounts";
import { LOCAL_CHAIN_ID } from "../../config.ts";
import { parseAddress } from "../../core/foreign-text.ts";
import { readFaucetAmount, FAUCET, createFaucet } from "./faucet.ts";
import { formatAtomic } from "../../core/money.ts";
import { ApiError } from "../../errors.ts";
import { FaucetAnswer, FaucetRequest, LocalInfo } from "../../schemas/local.ts";

/** The local world's helpers. In production shape they are not registered: 404, as if they never were. */
const routes: FastifyPluginAsyncTypebox = async (app) => {
  const { local } = app.config;
  const network = app.config.networks.find(({ chainId }) => chainId === LOCAL_CHAIN_ID);
  const rpcUrl = network?.rpcUrls[0];
  if (!local || !network || rpcUrl === undefined) return;
  const faucet = createFaucet({
    rpcUrl,
    chainId: network.chainId,
    privateKey: local.faucetPrivateKey,
    usdc: network.usdc.address,
  });

  app.post(
    "/api/local/faucet",
    {
      config: { auth: "public", rateLimit: { max: FAUCET.perMinute, timeWindow: "1 minute" } },
      schema: {
        tags: ["local"],
        summary: "Free USDC of the local chain",
        body: FaucetRequest,
        response: { 200: FaucetAnswer },
      },
    },
    async (request) => {
      const to = parseAddress(request.body.address);
      if (!to.ok) throw new ApiError("invalid_address", { detail: `body.address ${to.reason}` });
      const amount = readFaucetAmount(request.body.amount);
      if (!amount.ok)
        throw new ApiError("invalid_amount", { detail: `body.amount ${amount.reason}` });
      const txHash = await faucet
        .send({ to: to.address, amountAtomic: amount.atomic })
        .catch((cause: unknown) => {
          throw new ApiError("chain_unavailable", {
            cause,
            detail: "The local chain did not take the faucet's transaction; try again in a moment.",
          });
        });
      return {
        success: true as const,
        txHash,
        address: getAddress(to.address),
        amount: formatAtomic(amount.atomic),
      };
    },
  );

  app.get(
    "/api/local/info",
    {
      config: { auth: "public" },
      schema: {
        tags: ["local"],
        summary: "The demo wallet of the local world",
        response: { 200: LocalInfo },
      },
    },
    async (_request, reply) => {
      // A toy key all the same is for our own web app, not for every site open in the same browser.
      reply.removeHeader("access-control-allow-origin").header("cache-control", "no-store");
      return {
        demoOwnerAddress: privateKeyToAddress(local.demoOwnerPrivateKey),
        demoOwnerPrivateKey: local.demoOwnerPrivateKey,
        faucet: true as const,
        faucetAmount: FAUCET.usualAmount,
        faucetMaxAmount: FAUCET.maxAmount,
      };
    },
  );
};

export default routes;
