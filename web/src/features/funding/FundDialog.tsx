import { NativeSelect, SegmentedControl, Stack } from "@mantine/core";
import { useInputState } from "@mantine/hooks";
import { type ReactNode, useState } from "react";
import { Dialog } from "../../components/Dialog.tsx";
import type { Agent } from "../../lib/wire.ts";
import { useInfo, useNetwork } from "../../shared/info.ts";
import { hasWallet, useOwner } from "../../shared/session/session-context.ts";
import { Faucet } from "./Faucet.tsx";
import { FundFromWallet } from "./FundFromWallet.tsx";
import { Arrival } from "./Arrival.tsx";
import { WholeAddress } from "./WholeAddress.tsx";

export function FundDialog({
  agent,
  opened,
  onClose,
}: {
  agent: Agent;
  opened: boolean;
  onClose: () => void;
}): ReactNode {
  const info = useInfo();
  const [networkId, setNetworkId] = useInputState(agent.network);
  const network = useNetwork(networkId);
  const networks = info?.networks ?? [];
  const [way, setWay] = useState<string>();
  const isLocal = info?.localWorld === true;
  const isFromWallet = hasWallet(useOwner());
  const chosen = way ?? (isLocal ? "faucet" : isFromWallet ? "wallet" : "address");
  const options = [
    ...(isLocal ? [{ value: "faucet", label: "Faucet" }] : []),
    ...(isFromWallet ? [{ value: "wallet", label: "Your wallet" }] : []),
    { value: "address", label: "Address" },
  ];
  return (
    <Dialog opened={opened} onClose={onClose} title={`Fund ${agent.name}`}>
      <Stack>
        <SegmentedControl
          aria-label="How to fund"
          value={chosen}
          onChange={setWay}
          data={options}
        />
        {chosen !== "faucet" && networks.length > 1 && (
          <NativeSelect
            label="Network"
            value={networkId}
            onChange={setNetworkId}
            data={networks.map(({ id, name }) => ({
              value: id,
              label: id === agent.network ? `${name} (the agent's own)` : name,
            }))}
          />
        )}
        {chosen === "faucet" && <Faucet agent={agent} />}
        {chosen === "wallet" && info && network && (
          <FundFromWallet key={network.id} agent={agent} info={info} network={network} />
        )}
        {chosen === "address" && (
          <Stack gap="sm">
            <p>
              Send USDC on <strong>{network?.name}</strong> to this address, from any wallet or
              exchange.{" "}
              {networks.length > 1
                ? `The address is the same on every network, and USDC stays on the network where you send it.`
                : `Purser cannot see or move USDC that you send on another network.`}
            </p>
            <WholeAddress agent={agent} network={networkId} />
            <Arrival agent={agent} network={networkId} />
          </Stack>
        )}
      </Stack>
    </Dialog>
  );
}
