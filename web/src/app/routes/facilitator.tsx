import { Stack } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Columns } from "../../components/Layout.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Loading, Skeleton } from "../../components/Skeleton.tsx";
import { facilitatorStatsQuery } from "../../features/facilitator/api.ts";
import {
  BatchChart,
  FacilitatorNumbers,
  VolumeChart,
} from "../../features/facilitator/FacilitatorNumbers.tsx";
import { PointYourApi } from "../../features/facilitator/PointYourApi.tsx";
import { Recent } from "../../features/facilitator/Recent.tsx";
import { Relayers } from "../../features/facilitator/Relayers.tsx";
import { Supported } from "../../features/facilitator/Supported.tsx";
import { useInfo } from "../../shared/info.ts";

export default function FacilitatorScreen(): ReactNode {
  const info = useInfo();
  const network = info?.networks[0];
  const query = useQuery(facilitatorStatsQuery);
  const { data: stats, error } = query;
  return (
    <>
      <PageHeader
        title="Facilitator"
        lead="Verifies and settles x402 payments for any API, and pays the gas."
      />
      <Stack gap="lg">
        <QueryStatus
          query={query}
          what="numbers"
          failed={stats ? "These numbers may be out of date" : "The numbers could not be loaded"}
        />
        {(stats || !error) && <FacilitatorNumbers stats={stats} />}
        {!stats && !error && (
          <Loading label="charts">
            <Skeleton shape="chart" count={2} />
          </Loading>
        )}
        {stats && (
          <Columns>
            <VolumeChart stats={stats} />
            <BatchChart stats={stats} />
          </Columns>
        )}
        {info && network && <PointYourApi info={info} network={network} />}
        {stats && <Recent stats={stats} />}
        {stats && <Relayers stats={stats} />}
        {info && <Supported info={info} />}
      </Stack>
    </>
  );
}
