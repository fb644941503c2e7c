import type { ReactNode, SVGProps } from "react";

type IconProps = SVGProps<SVGSVGElement> & { size?: number };

/**
 * 20-unit grid, 1.6 stroke. Icons are decorative: the text beside one, or its button's label, has the
 * meaning.
 */
const icon =
  (paths: ReactNode) =>
  ({ size = 18, ...rest }: IconProps): ReactNode => (
    <svg
      width={size}
      height={size}
      viewBox="0 0 20 20"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.6"
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
      focusable="false"
      {...rest}
    >
      {paths}
    </svg>
  );

export const AgentsIcon = icon(
  <>
    <rect x="3" y="4" width="14" height="5" rx="1.5" />
    <rect x="3" y="11.5" width="14" height="5" rx="1.5" />
    <path d="M6 6.5h.01M6 14h.01" />
  </>,
);
export const MarketIcon = icon(
  <>
    <path d="M3.5 8.5V16a1 1 0 0 0 1 1h11a1 1 0 0 0 1-1V8.5" />
    <path d="M2.5 7 4 3h12l1.5 4a2.5 2.5 0 0 1-5 0 2.5 2.5 0 0 1-5 0 2.5 2.5 0 0 1-5 0z" />
  </>,
);
export const FacilitatorIcon = icon(
  <>
    <circle cx="10" cy="10" r="6" />
    <path d="M1.5 10h17" />
  </>,
);
export const MerchantIcon = icon(
  <>
    <path d="M5 2.5h10v15l-2.5-1.6L10 17.5l-2.5-1.6L5 17.5z" />
    <path d="M8 7h4m-4 3.5h4" />
  </>,
);
export const DeveloperIcon = icon(<path d="m7 6-4 4 4 4m6-8 4 4-4 4" />);
export const SettingsIcon = icon(
  <>
    <path d="M3 6h7m4 0h3M3 14h3m4 0h7" />
    <circle cx="12" cy="6" r="2" />
    <circle cx="8" cy="14" r="2" />
  </>,
);
export const SpendingIcon = icon(<path d="M3 17h14M5.5 13.500V9M10 13.500V4M14.500 13.500v-7" />);
export const PlusIcon = icon(<path d="M10 4v12M4 10h12" />);
export const CopyIcon = icon(
  <>
    <rect x="7" y="7" width="10" height="10" rx="2" />
    <path d="M13 7V5a2 2 0 0 0-2-2H5a2 2 0 0 0-2 2v6a2 2 0 0 0 2 2h2" />
  </>,
);
export const CheckIcon = icon(<path d="m4 10.5 4 4 8-9" />);
export const ExternalIcon = icon(
  <>
    <path d="M8 4H5a1.5 1.5 0 0 0-1.5 1.500v9A1.5 1.5 0 0 0 5 16h9a1.5 1.5 0 0 0 1.5-1.500V12" />
    <path d="M11.5 3.500h5v5M16 4l-7 7" />
  </>,
);
export const PauseIcon = icon(<path d="M7 4.500v11M13 4.500v11" />);
export const PlayIcon = icon(<path d="M6 4.500v11l9-5.500z" />);
export const QrIcon = icon(
  <>
    <rect x="3" y="3" width="5" height="5" />
    <rect x="12" y="3" width="5" height="5" />
    <rect x="3" y="12" width="5" height="5" />
    <path d="M12 12h2v2m3-2v5h-5" />
  </>,
);
export const SearchIcon = icon(
  <>
    <circle cx="9" cy="9" r="5.5" />
    <path d="m13 13 4 4" />
  </>,
);
export const AlertIcon = icon(
  <>
    <path d="M10 3 2.5 16h15z" />
    <path d="M10 8.500v3.500M10 14h.01" />
  </>,
);
export const BlockIcon = icon(
  <>
    <circle cx="10" cy="10" r="6.5" />
    <path d="m5.5 5.5 9 9" />
  </>,
);
export const DownloadIcon = icon(<path d="M10 3v9m-4-3.5 4 4 4-4M3.5 16.500h13" />);
export const TrashIcon = icon(<path d="M4 6h12M8 6V4h4v2m-6.5 0 .7 10h7.600l.7-10" />);
export const EyeIcon = icon(
  <>
    <path d="M2 10s3-5.5 8-5.500S18 10 18 10s-3 5.5-8 5.500S2 10 2 10z" />
    <circle cx="10" cy="10" r="2.3" />
  </>,
);
export const WalletIcon = icon(
  <>
    <path d="M16 6V5a1.5 1.5 0 0 0-1.5-1.500H4.500A1.5 1.5 0 0 0 3 5v10a1.5 1.5 0 0 0 1.5 1.500h11A1.5 1.5 0 0 0 17 15V7.500A1.5 1.5 0 0 0 15.5 6H4.5" />
    <path d="M13.5 11.500h.01" />
  </>,
);
export const KeyIcon = icon(
  <>
    <circle cx="7" cy="13" r="3.500" />
    <path d="m9.500 10.500 7-7m-3 3 2.500 2.500" />
  </>,
);
export const SunIcon = icon(
  <>
    <circle cx="10" cy="10" r="3.3" />
    <path d="M10 2v1.500M10 16.500V18M2 10h1.500M16.5 10H18M4.3 4.300l1.1 1.100M14.6 14.600l1.1 1.100M4.3 15.700l1.1-1.100M14.6 5.400l1.1-1.1" />
  </>,
);
export const MoonIcon = icon(<path d="M16.5 12A7 7 0 0 1 8 3.5 7 7 0 1 0 16.5 12z" />);
export const SystemIcon = icon(
  <>
    <rect x="2.5" y="4" width="15" height="10" rx="1.5" />
    <path d="M7 17h6" />
  </>,
);
export const ChevronIcon = icon(<path d="m7 4 6 6-6 6" />);
export const ArrowIcon = icon(<path d="M3 10h13m-5-5 5 5-5 5" />);
export const BellIcon = icon(<path d="M5 14V9a5 5 0 0 1 10 0v5l1.500 1.500h-13zM8.500 17.500h3" />);
export const ApprovalIcon = icon(
  <>
    <rect x="3" y="3" width="14" height="14" rx="3" />
    <path d="m6.500 10.300 2.500 2.500 4.500-5.300" />
  </>,
);
export const TeamIcon = icon(
  <>
    <circle cx="7.5" cy="7" r="2.8" />
    <path d="M2 16.500c.6-2.800 2.700-4.300 5.500-4.300s4.900 1.500 5.500 4.300" />
    <path d="M12.500 4.500a2.800 2.800 0 0 1 0 5.100M15 12.800c1.600.6 2.600 1.900 3 3.700" />
  </>,
);
export const WaitingIcon = icon(
  <>
    <path d="M3 15.500c2-1 3-5 4.500-8.500.6-1.400 2-1 1.700.6L8 13c-.3 1.500 1 1.600 1.700.6.7-1 1.300-1 1.800 0 .5.900 1.500.9 2.500 0" />
    <path d="M3 18h14" />
  </>,
);
export const UserIcon = icon(
  <>
    <circle cx="10" cy="7" r="3.3" />
    <path d="M3.5 17c.8-3.3 3.3-5 6.5-5s5.7 1.7 6.5 5" />
  </>,
);
export const StopIcon = icon(
  <>
    <path d="M7 2.500h6L17.500 7v6L13 17.500H7L2.500 13V7z" />
    <path d="M7 10h6" />
  </>,
);
