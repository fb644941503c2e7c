import { Box, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { TxHash } from "../../components/Address.tsx";
import { Note } from "../../components/Layout.tsx";
import type { Overview } from "../../lib/wire.ts";
import { useInfo, useNetworkNames } from "../../shared/info.ts";
import { overviewQuery } from "./api.ts";

type LedgerState = Overview["ledger"][number];

const blockOf = ({ asOfBlock }: LedgerState): string =>
  asOfBlock === null ? "" : BigInt(asOfBlock).toLocaleString("en-US");

/** Whether the ledger matches the chain, and up to which block this was checked. */
export function LedgerLine(): ReactNode {
  const { data } = useQuery(overviewQuery());
  const info = useInfo();
  const nameOf = useNetworkNames();
  if (!data || data.ledger.length === 0) return null;
  const isAlone = data.ledger.length === 1;
  const on = (state: LedgerState): string => (isAlone ? "" : ` on ${nameOf(state.network)}`);
  const equal = data.ledger.filter(({ equalsChain }) => equalsChain === true);
  const unread = data.ledger.filter(({ equalsChain }) => equalsChain === null);
  const differing = data.ledger.filter(({ equalsChain }) => equalsChain === false);
  return (
    <Stack gap="xs">
      {differing.map((state) => (
        <Note key={state.network} color="yellow">
          <p role="alert">
            <strong>
              The ledger differs from the chain{on(state)}, as of block {blockOf(state)}.
            </strong>
          </p>
          <Box component="ul" pl="md">
            {state.differences.map((difference) => (
              <li key={`${difference.kind}${difference.seenAt}${difference.txHash}`}>
                <Link to={`/agents/${difference.agentId}`}>This agent</Link>: {difference.meaning}.{" "}
                {difference.txHash !== null && (
                  <TxHash
                    value={difference.txHash}
                    explorerUrl={
                      info?.localWorld === true
                        ? undefined
                        : info?.networks.find(({ id }) => id === state.network)?.explorerUrl
                    }
                  />
                )}
              </li>
            ))}
          </Box>
        </Note>
      ))}
      {equal.length > 0 && (
        <Text c="dimmed" size="sm">
          The ledger matches the chain as of block{" "}
          {equal.map((state) => `${blockOf(state)}${on(state)}`).join(", ")}
        </Text>
      )}
      {unread.length > 0 && (
        <Text c="dimmed" size="sm">
          The ledger is not compared with the chain yet
          {isAlone ? "" : `: ${unread.map(({ network }) => nameOf(network)).join(", ")}`}
        </Text>
      )}
    </Stack>
  );
}
