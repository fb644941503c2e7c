/** Completes a configuration with the local world, where the environment names no database or no chain. */
import { missingServices, type Config, type NetworkConfig } from "../config.ts";
import { startLocalWorld, type LocalWorld } from "./world.ts";

export async function withLocalWorld(
  config: Config,
  onProgress: (line: string) => void,
): Promise<{ config: Config; world: LocalWorld | undefined }> {
  const missing = missingServices(config);
  if (!missing.postgres && !missing.chain) return { config, world: undefined };
  const world = await startLocalWorld({
    dataDir: config.dataDir,
    ...missing,
    relayerPrivateKeys: config.relayerPrivateKeys,
    onProgress,
  });
  return { config: completed(config, world), world };
}

function completed(config: Config, world: LocalWorld): Config {
  const { rpcUrl } = world;
  const reachable = (network: NetworkConfig): NetworkConfig =>
    network.rpcUrls.length === 0 && rpcUrl !== undefined
      ? { ...network, rpcUrls: [rpcUrl] }
      : network;
  const [first, ...others] = config.networks;
  const keys = config.masterKeys.length > 0 ? config : localMasterKeys(world);
  return {
    ...config,
    databaseUrl: config.databaseUrl ?? world.databaseUrl,
    networks: [reachable(first), ...others.map(reachable)],
    relayerPrivateKeys: world.relayerPrivateKeys,
    masterKeys: keys.masterKeys,
    masterKeyActive: keys.masterKeyActive,
    // Faucet and demo wallet exist only where the money is play money.
    local:
      rpcUrl === undefined
        ? undefined
        : {
            faucetPrivateKey: world.faucetPrivateKey,
            demoOwnerPrivateKey: world.demoOwnerPrivateKey,
          },
  };
}

function localMasterKeys(world: LocalWorld): Pick<Config, "masterKeys" | "masterKeyActive"> {
  const masterKeys = world.masterKeys.split(",").map((entry) => {
    const [kid = "", encoded = ""] = entry.split(":");
    return { kid, key: new Uint8Array(Buffer.from(encoded, "base64")) };
  });
  return { masterKeys, masterKeyActive: world.masterKeyActive };
}
