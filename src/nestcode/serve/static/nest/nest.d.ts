/** Bytes that are not a stream, or that a checksum refuses; `message` is that of the Python library. */
export class DamagedFile extends Error {}
/** A source, a codec or an option that cannot be used. */
export class InvalidInput extends Error {}

export interface StreamOptions {
  /** The file that `ImageCodec.save` wrote, unless the codec is embedded or the one that ships with Nestcode. */
  codec?: Uint8Array;
  /** Refuse streams that take more bytes of memory than this; by default 2 GiB. */
  limit?: number;
  /** The first bytes of the stream, which are not requested again. */
  start?: Uint8Array;
}

export interface DecodedImage {
  readonly name: string;
  readonly height: number;
  readonly width: number;
  /** 1 gray, 2 gray and alpha, 3 RGB, 4 RGBA. */
  readonly channels: 1 | 2 | 3 | 4;
  /** (height, width, channels), 8 bits each; images of 16 bits are rounded. */
  readonly pixels: Uint8Array;
}

/** All images of a stream after some of its bytes. */
export interface Frame {
  /** Bytes of the stream that are decoded. */
  readonly bytes: number;
  /** Bytes of the whole stream. */
  readonly total: number;
  /** Whether all of it arrived and matches its checksums. */
  readonly complete: boolean;
  readonly images: readonly DecodedImage[];
}

/**
 * A stream of images, whole or truncated. Pages decode in a worker, Node in place.
 *
 *     const stream = await NestStream.open("photos.nest");
 *     for await (const frame of stream.images({ bytes: 20_000 })) draw(frame.images[0]);
 */
export class NestStream {
  /** Open a stream at an address, or in memory. */
  static open(source: string | URL | Blob | ArrayBuffer | Uint8Array, options?: StreamOptions): Promise<NestStream>;
  /**
   * Yield all images while more of the stream arrives, until `bytes` of it, header included, are decoded, or the bytes
   * that images need which are shown `width` pixels of the screen wide.
   *
   * A later call goes on where the last one ended, or steps back without reading again, and ends the earlier calls. If a
   * block is damaged the last frame is of what precedes it, then the error is thrown.
   */
  images(options?: { bytes?: number; width?: number }): AsyncGenerator<Frame, void, undefined>;
  /** Stop reading and free the memory of the decoder. */
  close(): Promise<void>;
}

/** Return an image as the ImageData that canvases draw. */
export function toImageData(image: DecodedImage): ImageData;
